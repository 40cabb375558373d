"""Where the output of runs is stored: days in the database, days in the archive, and what waits between them. A pass now, and a check of a day."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.answer import Done
from toban_admin_web.decide.api_models import Archive, ArchiveCheck
from toban_admin_web.views.actions import confirmed, form, given_reason, require
from toban_admin_web.views.stream_response import occupied
from toban_admin_web.views.view_context import page, read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

views = Blueprint("archive", __name__)
# Of the log-archiver, which a coordinator asks: the frame of the page does not need it.
_NO_ANSWER = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.UNIMPLEMENTED})


@views.get("/archive")
def show() -> Response:
    """The newest day first."""
    try:
        archive = read("JobReader.GetArchive", Archive)
    except TobanError as error:
        if error.code not in _NO_ANSWER:
            raise
        return page("archive", archive=None, error=error.message)
    open_chunks = sum(day.open_chunks for day in archive.days if day.due)
    return page("archive", archive=archive, days=archive.days[::-1], open_chunks=open_chunks)


@views.get("/archive/run")
def ask_run() -> Response:
    """Asks whether a log-archiver is to make a pass now."""
    return _form("run")


@views.post("/archive/run")
def run() -> Response:
    """A pass begins; the page shows how it ended."""

    def work() -> str:
        write("Operations.RunArchive", Done, reason=given_reason())
        return url_for("archive.show", done="archive_asked")

    return confirmed(work, lambda status, **why: _form("run", status, **why))


@views.get("/archive/verify")
def ask_verify() -> Response:
    """The form of a check of the day ?day=."""
    return _form("verify")


@views.post("/archive/verify")
def verify() -> Response:
    """Checks the next objects of a day, with what was found above the form."""
    found: list[ArchiveCheck] = []

    def work() -> str:
        fields = {"log_day": _day(), "cursor": _cursor(), "reason": given_reason()}
        with occupied():
            found.append(write("Operations.VerifyArchive", ArchiveCheck, **fields))
        return ""

    response = confirmed(work, lambda status, **why: _form("verify", status, **why))
    return _form("verify", check=found[0], reason=given_reason()) if found else response


def _form(verb: str, status: int = 200, *, check: ArchiveCheck | None = None, **values: Any) -> Response:
    require(Action.OPERATE)
    parts = {"begun": bool(_cursor()), "cursor": check.next_cursor if check else _cursor(), "before": _broken_before()}
    return form("archive_action", status, verb=verb, day=_day(), check=check, **parts, **values)


def _cursor() -> str:
    return request.form.get("cursor", "")


def _broken_before() -> int:
    """How many objects the parts before this one found broken; the form carries it."""
    text = request.form.get("broken", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _day() -> str:
    return request.values.get("day", "").strip()[:20]
