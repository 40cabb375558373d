"""Spreads schedules that fire in one crowded minute: a preview of each new rule with its slots, then one apply with a reason."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.api_models import AppliedManifests, ComingLoad, Schedule, SchedulePage
from toban_admin_web.decide.definition_text import stored_document
from toban_admin_web.decide.filters import moment
from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.month_calendar import rule_of
from toban_admin_web.decide.spread import LAST_MINUTE, Move, Spread, spread
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.view_context import context, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_schedule import AnnotatedSlot, annotated_slots

# Schedules of the minute that are looked at, and that one apply moves.
MOST_READ = 100
MOST_MOVED = 50
SLOTS_SHOWN = 3
DEFAULT_MINUTES = 15

views = Blueprint("spread", __name__)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a form asks for: so many schedules of a minute over so many minutes."""

    at: datetime
    count: int
    minutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preview:
    """What would change. `versions`: of the schedules that were looked at; `unread`: how many more fire in the minute.

    `refusal`: why the coordinators would not apply it.
    """

    spread: Spread
    versions: Mapping[str, int]
    unread: int
    before: Mapping[str, Sequence[AnnotatedSlot]] = field(default_factory=dict)
    after: Mapping[str, Sequence[AnnotatedSlot]] = field(default_factory=dict)
    refusal: str = ""

    @property
    def seen(self) -> str:
        """The versions as a field of the form."""
        return " ".join(f"{name}={version}" for name, version in self.versions.items())

    @property
    def moved(self) -> list[Move]:
        """Those whose rule changes."""
        return [one for one in self.spread.moves if not one.stays]


@views.route("/load/spread", methods=["GET", "POST"])
def show() -> Response:
    """Asks how far to spread a minute, and shows what that changes; a form that was sent applies it."""
    require(Action.EDIT)
    choice = _choice()
    if request.method == "GET":
        return _form(choice)

    def work() -> str:
        reason = given_reason()
        seen = _seen()
        found = _schedules(seen)
        if not seen or {name: one.version for name, one in found.items()} != seen:
            raise Refused("load_changed")
        chosen = spread({name: as_object(one.spec) for name, one in found.items()}, choice.count, choice.minutes)
        moved = [one for one in chosen.moves if not one.stays]
        if not moved:
            raise Refused("load_nothing")
        _apply(moved, seen, dry_run=False, reason=reason)
        return url_for("load.show", minute=f"{choice.at:%Y-%m-%dT%H:%M}", done="spread")

    return confirmed(work, lambda status, **why: _form(choice, status, **why))


def _form(choice: _Choice, status: int = 200, **why: Any) -> Response:
    preview = _preview(choice)
    return form(
        "load_spread",
        status,
        at=choice.at,
        preview=preview,
        count=len(preview.spread.moves),
        most=min(MOST_MOVED, preview.spread.movable),
        minutes=choice.minutes,
        longest=LAST_MINUTE + 1 - choice.at.minute,
        **why,
    )


def _choice() -> _Choice:
    at = moment(request.values.get("minute", ""))
    if at is None:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "the address names no minute; write ?minute=2026-11-29T18:00")
    longest = LAST_MINUTE + 1 - at.minute
    return _Choice(
        at=at,
        count=_number("count", MOST_MOVED, MOST_MOVED),
        minutes=_number("over", min(DEFAULT_MINUTES, longest), longest),
    )


def _number(name: str, default: int, most: int) -> int:
    text = request.values.get(name, "")
    return min(max(int(text), 1), most) if text.isascii() and text.isdigit() and len(text) < 5 else default


def _preview(choice: _Choice) -> _Preview:
    crowded = read("JobReader.GetComingLoad", ComingLoad, minute=choice.at, names=MOST_READ).crowded
    counted = {one.schedule: one.version for minute in crowded for one in minute.named}
    found = _schedules(counted)
    # A coordinator may answer from its memory: a schedule may have been moved since.
    changed = {name for name, one in found.items() if one.version != counted[name]}
    specs = {name: as_object(one.spec) for name, one in found.items()}
    chosen = spread(specs, choice.count, choice.minutes, changed=changed)
    preview = _Preview(
        spread=chosen,
        versions={name: one.version for name, one in found.items() if name not in changed},
        unread=sum(minute.schedules for minute in crowded) - len(counted),
    )
    if not preview.moved:
        return preview
    try:
        _apply(preview.moved, preview.versions, dry_run=True)
    except TobanError as error:
        if error.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED):
            raise
        return _Preview(spread=chosen, versions=preview.versions, unread=preview.unread, refusal=error.message)
    before = {one.name: _slots(specs[one.name], one.name) for one in preview.moved}
    after = {one.name: _slots(one.spec, one.name) for one in preview.moved}
    return _Preview(spread=chosen, versions=preview.versions, unread=preview.unread, before=before, after=after)


def _schedules(names: Collection[str]) -> dict[str, Schedule]:
    """Those of these names that there are. A coordinator of the release before lists others, too."""
    if not names:
        return {}
    page = read("JobReader.ListSchedules", SchedulePage, names=list(names), page={"limit": MOST_READ})
    return {one.name: one for one in page.schedules if one.name in names}


def _slots(spec: Mapping[str, Any], name: str) -> Sequence[AnnotatedSlot]:
    rule = rule_of(spec, name)
    return annotated_slots(rule, context().clock.wall(), SLOTS_SHOWN) if rule else ()


def _apply(moved: Sequence[Move], versions: Mapping[str, int], *, dry_run: bool, reason: str = "") -> None:
    """All or nothing: none changes when one of them is stored in another version."""
    manifests = [{"json": _document(one), "source": one.name, "expect_version": versions[one.name]} for one in moved]
    write("JobControl.Apply", AppliedManifests, manifests=manifests, dry_run=dry_run, reason=reason)


def _document(move: Move) -> str:
    return json.dumps(stored_document("Schedule", move.spec), ensure_ascii=False)


def _seen() -> dict[str, int]:
    """The schedules of the preview that the form was made from, with their versions."""
    pairs = [text.partition("=") for text in request.form.get("seen", "").split()[:MOST_READ]]
    return {
        name: int(version)
        for name, _, version in pairs
        if version.isascii() and version.isdigit() and len(version) < 19 and name
    }
