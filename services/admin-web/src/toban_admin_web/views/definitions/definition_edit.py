"""Jobs and schedules are edited, or made, as YAML: checked by a dry run, compared with what is stored, then applied with a reason.

A schedule also has a form. It makes the YAML, which goes the same way from there on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flask import Blueprint, Response, current_app, render_template, request, url_for

from toban_admin_web.decide.api_models import Applied, AppliedManifests, Job, NextSlots, Schedule
from toban_admin_web.decide.definition_text import (
    SOURCE,
    document_of,
    example_document,
    form_bytes,
    shown_text,
    stored_document,
    text_digest,
    yaml_of,
)
from toban_admin_web.decide.filters import wants_part
from toban_admin_web.decide.schedule_form import FIELDS, KINDS, UNITS, form_of, has_details, kept_keys, manifest_of
from toban_admin_web.decide.schedule_text import WEEKDAYS
from toban_admin_web.decide.spec_diff import DiffLine, text_diff
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.people.directory import job_names
from toban_admin_web.views.view_context import context, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_schedule.zones import zone_names

NEXT_SLOTS = 10
# Bytes of a form besides its text: the reason, the version and what else is hidden in it.
FORM_REST = 4096
_REFUSALS = (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED)

views = Blueprint("definition_edit", __name__)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is edited: a definition as it is stored, or a new one (no name, version 0)."""

    kind: str
    name: str
    version: int
    spec: Any

    @property
    def path(self) -> str:
        """The page of what is stored, or of all of its kind."""
        page = "jobs" if self.kind == "Job" else "schedules"
        return url_for(f"{page}.show", name=self.name) if self.name else url_for(f"{page}.listed")


@dataclass(frozen=True, slots=True)
class _Checked:
    """What a dry run says about a text: its mistakes, or what it would change.

    `digest` is that of a text without mistakes whose changes are shown, so that it may be applied. `conflict`: a newer version is stored.
    `misfits`: payloads of schedules and triggers that would fail, for which the text is refused unless that is wanted.
    """

    mistakes: Sequence[str] = ()
    misfits: Sequence[str] = ()
    lines: Sequence[DiffLine] | None = ()
    applied: Applied | None = None
    slots: NextSlots | None = None
    digest: str = ""
    conflict: bool = False


class _Draft:
    """A text that a form holds, parsed and checked once each, and only when that is needed.

    With `fields`, those of the form for schedules, they make the text. `unfit`: the form was wanted and cannot hold this text.
    """

    def __init__(
        self,
        subject: _Subject,
        seen: int,
        *,
        text: str = "",
        fields: Mapping[str, str] | None = None,
        unfit: bool = False,
    ) -> None:
        self.subject = subject
        self.seen = seen
        self.fields = fields
        self.unfit = unfit
        # Why the fields make no text.
        self.problem: TobanError | None = None
        try:
            self.text = text if fields is None else yaml_of(manifest_of(fields))
        except TobanError as error:
            self.text, self.problem = "", error
        # Of `document`: values that may be meant otherwise.
        self.warnings: list[str] = []

    @cached_property
    def document(self) -> dict[str, Any] | TobanError:
        """What the text says, or why it cannot be read."""
        if self.problem is not None:
            return self.problem
        try:
            return document_of(self.text, self.subject.kind, self.subject.name, warn=self.warnings.append)
        except TobanError as error:
            return error

    @cached_property
    def checked(self) -> _Checked:
        """What a dry run says."""
        return _check(self)


@views.route("/jobs/<name>/edit", methods=["GET", "POST"])
def job(name: str) -> Response:
    """Changes the definition of a job."""
    require(Action.EDIT)
    found = read("JobReader.GetJob", Job, name=name)
    return _page(_Subject("Job", name, found.version, found.spec))


@views.route("/schedules/<name>/edit", methods=["GET", "POST"])
def schedule(name: str) -> Response:
    """Changes the definition of a schedule."""
    require(Action.EDIT)
    found = read("JobReader.GetSchedule", Schedule, name=name)
    return _page(_Subject("Schedule", name, found.version, found.spec))


@views.route("/new/job", methods=["GET", "POST"])
def new_job() -> Response:
    """Makes a job."""
    require(Action.EDIT)
    return _page(_Subject("Job", "", 0, None))


@views.route("/new/schedule", methods=["GET", "POST"])
def new_schedule() -> Response:
    """Makes a schedule, of the job that the address names."""
    require(Action.EDIT)
    return _page(_Subject("Schedule", "", 0, None))


def _page(subject: _Subject) -> Response:
    if request.method == "GET":
        document = (
            stored_document(subject.kind, subject.spec)
            if subject.name
            else example_document(subject.kind, request.args.get("job", ""))
        )
        as_form = subject.kind == "Schedule" and request.args.get("as") != "yaml"
        return _show(_draft_of(subject, document, subject.version, as_form=as_form), _Checked())
    draft = _sent_draft(subject)
    if wanted := request.form.get("as"):
        # A form that makes no text stays as it is: its mistake says why.
        return _show(_turned(draft, wanted), draft.checked if draft.problem else _Checked())
    if wants_part(request.args):
        values = {
            "checked": draft.checked,
            "warnings": draft.warnings,
            "subject": subject,
            "endpoint": request.endpoint,
        }
        return Response(render_template("definition_edit_part.html", **values, now=context().clock.wall()))
    if "check" in request.form:
        return _show(draft, draft.checked)

    def work() -> str:
        # A text whose changes were seen needs no dry run: applying it checks it again.
        if request.form.get("seen") != text_digest(draft.text):
            raise _not_seen(draft.checked)
        [applied] = _apply(draft, dry_run=False, force="force" in request.form, reason=given_reason()).applied
        page = "jobs" if subject.kind == "Job" else "schedules"
        done = "applied_unchanged" if applied.action == "unchanged" else "applied"
        return url_for(f"{page}.show", name=applied.name, done=done)

    return confirmed(work, lambda status, **why: _show(draft, draft.checked, status, **why))


def _draft_of(subject: _Subject, document: dict[str, Any], seen: int, *, as_form: bool) -> _Draft:
    """A draft in the form, if that is wanted and the form can hold the document; else as YAML."""
    fields = form_of(document) if as_form else None
    return _Draft(subject, seen, text=yaml_of(document), fields=fields, unfit=as_form and fields is None)


def _sent_draft(subject: _Subject) -> _Draft:
    if subject.kind != "Schedule" or "kind" not in request.form:
        return _Draft(subject, _seen_version(), text=request.form.get("manifest", ""))
    fields = {**dict.fromkeys(FIELDS, ""), **request.form.to_dict(), "days": ",".join(request.form.getlist("days"))}
    return _Draft(subject, _seen_version(), fields=fields | ({"name": subject.name} if subject.name else {}))


def _turned(draft: _Draft, wanted: str) -> _Draft:
    """The same as YAML, or in the form; as it is when it cannot be read."""
    if draft.problem is not None or wanted not in ("form", "yaml"):
        return draft
    if wanted == "yaml":
        return _Draft(draft.subject, draft.seen, text=draft.text)
    if isinstance(draft.document, TobanError):
        return _Draft(draft.subject, draft.seen, text=draft.text, unfit=True)
    fields = form_of(draft.document)
    return _Draft(draft.subject, draft.seen, text=draft.text, fields=fields, unfit=fields is None)


def _not_seen(checked: _Checked) -> Refused:
    """Why a text that was not checked before is not applied."""
    if checked.mistakes:
        return Refused("wrong_manifest")
    return Refused("read_change") if checked.digest else Refused("long_change")


def _show(draft: _Draft, checked: _Checked, status: int = 200, **why: Any) -> Response:
    return form(
        "definition_edit",
        status,
        subject=draft.subject,
        text=draft.text,
        unfit=draft.unfit,
        **_form_values(draft.fields),
        checked=checked,
        warnings=draft.warnings,
        seen=draft.seen,
        endpoint=request.endpoint,
        too_large=request.method == "GET" and _is_too_large(draft.text),
        now=context().clock.wall(),
        **why,
    )


def _form_values(fields: Mapping[str, str] | None) -> dict[str, Any]:
    """What the template of the form needs; no fields for YAML."""
    if fields is None:
        return {"fields": None}
    return {
        "fields": fields,
        "kept": kept_keys(fields),
        "details": has_details(fields),
        "chosen_days": fields.get("days", "").split(","),
        "jobs": job_names(),
        "zones": zone_names(),
        "kinds": KINDS,
        "units": UNITS,
        "weekdays": WEEKDAYS,
    }


def _is_too_large(text: str) -> bool:
    most: int = current_app.config["MAX_CONTENT_LENGTH"]
    return form_bytes(text) + FORM_REST > most


def _seen_version() -> int:
    """The version that the form was made from: a stale page must not overwrite a newer edit. Without one nothing fits, so it is a new one."""
    text = request.form.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0


def _check(draft: _Draft) -> _Checked:
    subject = draft.subject
    try:
        applied, misfits = _dry_run(draft)
        document = _document(draft)
        slots = _next_slots(document) if subject.kind == "Schedule" else None
    except TobanError as error:
        if error.code in _REFUSALS:
            raise
        return _Checked(mistakes=_mistakes(error), conflict=error.code is ErrorCode.CONFLICT)
    before = shown_text(stored_document(subject.kind, subject.spec)) if subject.name else ""
    lines = text_diff(before, shown_text(document)) if applied.action != "unchanged" else ()
    digest = text_digest(draft.text) if lines is not None else ""
    return _Checked(misfits=misfits, lines=lines, applied=applied, slots=slots, digest=digest)


def _dry_run(draft: _Draft) -> tuple[Applied, Sequence[str]]:
    """What would change, and the payloads that would fail then; raises what is refused whether these fail or not."""
    try:
        [applied] = _apply(draft, dry_run=True).applied
    except TobanError as error:
        if error.code is not ErrorCode.PAYLOAD_INVALID:
            raise
        [applied] = _apply(draft, dry_run=True, force=True).applied
        return applied, _mistakes(error, hints=False)
    return applied, ()


def _document(draft: _Draft) -> dict[str, Any]:
    if isinstance(draft.document, TobanError):
        raise draft.document
    return draft.document


def _apply(draft: _Draft, *, dry_run: bool, force: bool = False, reason: str = "") -> AppliedManifests:
    manifest = {**_manifest(_document(draft)), "expect_version": draft.seen}
    return write(
        "JobControl.Apply", AppliedManifests, manifests=[manifest], dry_run=dry_run, force=force, reason=reason
    )


def _next_slots(document: dict[str, Any]) -> NextSlots:
    return read("JobReader.NextSlots", NextSlots, manifest=_manifest(document), count=NEXT_SLOTS)


def _manifest(document: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"json": json.dumps(document, ensure_ascii=False), "source": SOURCE}
    except (TypeError, ValueError, RecursionError) as error:
        # YAML has values and keys that JSON has not, such as sets and binary data.
        raise TobanError(ErrorCode.MANIFEST_INVALID, f"{SOURCE}: {error}; use texts, numbers and lists") from None


def _mistakes(error: TobanError, *, hints: bool = True) -> list[str]:
    """Each mistake with its place, and with `hints` its remedy."""
    found = error.detail.get("errors")
    if not isinstance(found, list) or not found:
        return [error.message]
    lines = [
        f"{one['path'] or SOURCE}: {one['message']}" + (f"; {one['hint']}" if hints and one["hint"] else "")
        for one in found
    ]
    left_out = error.detail.get("left_out")
    return [*lines, f"… +{left_out}"] if left_out else lines
