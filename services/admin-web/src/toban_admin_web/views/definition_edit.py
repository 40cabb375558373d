"""Jobs and schedules are edited, or made, as YAML: checked by a dry run, compared with what is stored, then applied with a reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, Response, render_template, request, url_for

from toban_admin_web.decide.definition_text import (
    SOURCE,
    document_of,
    example_text,
    shown_text,
    stored_text,
    text_digest,
)
from toban_admin_web.decide.filters import wants_part
from toban_admin_web.decide.spec_diff import DiffLine, text_diff
from toban_admin_web.views.actions import Refused, caller, confirmed, form, given_reason, require
from toban_admin_web.views.api.answers_definitions import Applied, AppliedManifests, NextSlots
from toban_admin_web.views.view_context import context, reader
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

NEXT_SLOTS = 10
_REFUSALS = (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED)

views = Blueprint("definition_edit", __name__)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is edited: a definition as it is stored, or a new one (no name, version 0)."""

    kind: str
    name: str
    version: int
    stored: str

    @property
    def path(self) -> str:
        """The page of what is stored, or of all of its kind."""
        page = "jobs" if self.kind == "Job" else "schedules"
        return url_for(f"{page}.show", name=self.name) if self.name else url_for(f"{page}.listed")


@dataclass(frozen=True, slots=True)
class _Checked:
    """What a dry run says about a text: its mistakes, or what it would change. `digest` is that of a text without mistakes."""

    mistakes: Sequence[str] = ()
    lines: Sequence[DiffLine] | None = ()
    applied: Applied | None = None
    slots: NextSlots | None = None
    digest: str = ""


@views.route("/jobs/<name>/edit", methods=["GET", "POST"])
def job(name: str) -> Response:
    """Changes the definition of a job."""
    require(Action.EDIT)
    found = reader().job(name)
    return _page(_Subject("Job", name, found.version, stored_text("Job", found.spec_json)))


@views.route("/schedules/<name>/edit", methods=["GET", "POST"])
def schedule(name: str) -> Response:
    """Changes the definition of a schedule."""
    require(Action.EDIT)
    found = reader().schedule(name)
    return _page(_Subject("Schedule", name, found.version, stored_text("Schedule", found.spec_json)))


@views.route("/new/job", methods=["GET", "POST"])
def new_job() -> Response:
    """Makes a job."""
    require(Action.EDIT)
    return _page(_Subject("Job", "", 0, ""))


@views.route("/new/schedule", methods=["GET", "POST"])
def new_schedule() -> Response:
    """Makes a schedule, of the job that the address names."""
    require(Action.EDIT)
    return _page(_Subject("Schedule", "", 0, ""))


def _page(subject: _Subject) -> Response:
    if request.method == "GET":
        text = subject.stored or example_text(subject.kind, request.args.get("job", ""))
        return _show(subject, text, _Checked(), subject.version)
    text = request.form.get("manifest", "")
    seen = _seen_version()
    checked = _check(subject, text, seen)
    if wants_part(request.args):
        return Response(render_template("definition_edit_part.html", checked=checked, now=context().clock.wall()))
    if "check" in request.form:
        return _show(subject, text, checked, seen)

    def work() -> str:
        if checked.mistakes:
            raise Refused("wrong_manifest")
        if request.form.get("seen") != checked.digest:
            raise Refused("read_change")
        [applied] = _apply(subject, text, seen, dry_run=False, reason=given_reason()).applied
        page = "jobs" if subject.kind == "Job" else "schedules"
        done = "applied_unchanged" if applied.action == "unchanged" else "applied"
        return url_for(f"{page}.show", name=applied.name, done=done)

    return confirmed(work, lambda status, **why: _show(subject, text, checked, seen, status, **why))


def _show(subject: _Subject, text: str, checked: _Checked, seen: int, status: int = 200, **why: Any) -> Response:
    return form(
        "definition_edit",
        status,
        subject=subject,
        text=text,
        checked=checked,
        seen=seen,
        endpoint=request.endpoint,
        now=context().clock.wall(),
        **why,
    )


def _seen_version() -> int:
    """The version that the form was made from: a stale page must not overwrite a newer edit. Without one nothing fits, so it is a new one."""
    text = request.form.get("version", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0


def _check(subject: _Subject, text: str, seen: int) -> _Checked:
    try:
        document = document_of(text, subject.kind, subject.name)
        [applied] = _apply(subject, text, seen, dry_run=True).applied
        slots = _next_slots(document) if subject.kind == "Schedule" else None
    except TobanError as error:
        if error.code in _REFUSALS:
            raise
        return _Checked(mistakes=_mistakes(error))
    before = shown_text(document_of(subject.stored, subject.kind)) if subject.stored else ""
    lines = text_diff(before, shown_text(document)) if applied.action != "unchanged" else ()
    return _Checked((), lines, applied, slots, text_digest(text))


def _apply(subject: _Subject, text: str, seen: int, *, dry_run: bool, reason: str = "") -> AppliedManifests:
    manifest = {**_manifest(document_of(text, subject.kind, subject.name)), "expect_version": seen}
    fields = {"manifests": [manifest], "dry_run": dry_run, "reason": reason}
    return caller().write("JobControl.Apply", AppliedManifests, fields)


def _next_slots(document: dict[str, Any]) -> NextSlots:
    return caller().read("JobReader.NextSlots", NextSlots, {"manifest": _manifest(document), "count": NEXT_SLOTS})


def _manifest(document: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"json": json.dumps(document, ensure_ascii=False), "source": SOURCE}
    except (TypeError, ValueError, RecursionError) as error:
        # YAML has values and keys that JSON has not, such as sets and binary data.
        raise TobanError(ErrorCode.MANIFEST_INVALID, f"{SOURCE}: {error}; use texts, numbers and lists") from None


def _mistakes(error: TobanError) -> list[str]:
    """Each mistake with its place and its remedy."""
    found = error.detail.get("errors")
    if not isinstance(found, list) or not found:
        return [error.message]
    lines = [
        f"{one['path'] or SOURCE}: {one['message']}" + (f"; {one['hint']}" if one["hint"] else "") for one in found
    ]
    left_out = error.detail.get("left_out")
    return [*lines, f"… +{left_out}"] if left_out else lines
