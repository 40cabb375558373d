"""The audit: who started or changed what, and from where; its export, and the check of its hash chain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request

from toban_admin_web.decide.api_models import AuditCheck, AuditPage, AuditProblem
from toban_admin_web.decide.audit_changes import ExportedPage, action_words, changed_lines
from toban_admin_web.decide.filters import AUDIT_FILTERS, AuditFilter, parse_audit_filter
from toban_admin_web.ports.api import Caller
from toban_admin_web.views.actions import require
from toban_admin_web.views.stream_response import occupied, stream_response
from toban_admin_web.views.view_context import ViewContext, caller, context, page, read
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

MOST_ROWS = 100_000
PAGE_ROWS = 500
EXPORT_SECONDS = 600.0
CHECK_SECONDS = 30.0
MOST_PROBLEMS = 50
JSON_LINES = "application/jsonl; charset=utf-8"

views = Blueprint("audit", __name__)


@views.get("/audit")
def listed() -> Response:
    """Actions, newest first. Coordinators refuse it to people without role admin for everything."""
    filters = parse_audit_filter(request.args)
    audit = read("Operations.ListAudit", AuditPage, **filters.fields())
    changes = {entry.id: changed_lines(entry.before, entry.after) for entry in audit.entries}
    return page("audit", audit=audit, filters=filters, names=AUDIT_FILTERS, changes=changes, action_words=action_words)


@views.get("/audit/export")
def export() -> Response:
    """The rows of the filters as JSON lines, the oldest first. The first page is read before the answer begins, so a refusal is a page."""
    require(Action.OPERATE)
    by, filters = caller(), parse_audit_filter(request.args)
    here, first = context(), _rows(by, filters, "")
    response = stream_response(lambda: _export(here, by, filters, first), JSON_LINES)
    response.headers["Content-Disposition"] = f'attachment; filename="audit-{here.clock.wall():%Y%m%d-%H%M%S}.jsonl"'
    return response


@views.get("/audit/verify")
def verify() -> Response:
    """Whether a row of the audit was changed, removed or inserted. `?check=1` reads it, from `cursor` on; what is not read in time is a link."""
    require(Action.OPERATE)
    head, cursor = request.args.get("head", "").strip()[:100], request.args.get("cursor", "")[:100]
    empty: dict[str, Any] = {"check": None, "problems": [], "rows": 0, "wrong": ""}
    if not request.args.get("check"):
        return page("audit_verify", head=head, **empty)
    try:
        with occupied():
            check, problems, rows = _checked(cursor, head)
    except TobanError as error:
        if error.code is not ErrorCode.INVALID_ARGUMENT:
            raise
        response = page("audit_verify", head=head, **(empty | {"wrong": error.message}))
        response.status_code = 400
        return response
    return page("audit_verify", head=head, check=check, problems=problems, rows=rows, wrong="")


def _checked(cursor: str, head: str) -> tuple[AuditCheck, list[AuditProblem], int]:
    """The last part that was read in time, and what all of them found."""
    clock, problems, rows = context().clock, list[AuditProblem](), 0
    ends_at = clock.monotonic() + CHECK_SECONDS
    while True:
        check = read("Operations.VerifyAudit", AuditCheck, cursor=cursor, known_head=head if not cursor else "")
        problems += check.problems
        rows += int(check.rows)
        cursor = check.next_cursor
        if not cursor or clock.monotonic() > ends_at:
            return check, problems[:MOST_PROBLEMS], rows


def _rows(by: Caller, filters: AuditFilter, cursor: str) -> ExportedPage:
    fields = {**filters.wanted(), "oldest_first": True, "page": {"limit": PAGE_ROWS, "cursor": cursor}}
    return by.read("Operations.ListAudit", ExportedPage, fields)


def _export(here: ViewContext, by: Caller, filters: AuditFilter, rows: ExportedPage) -> Iterator[bytes]:
    """Each row, and a last line that is no row when some are missing: a check of the file then refuses it."""
    ends_at, left = here.clock.monotonic() + EXPORT_SECONDS, MOST_ROWS
    while True:
        yield "".join(f"{one.line()}\n" for one in rows.entries).encode()
        left -= len(rows.entries)
        if not rows.next_cursor:
            return
        if left <= 0 or here.clock.monotonic() > ends_at:
            yield _incomplete(
                f"the export ends after {MOST_ROWS:,} rows or {EXPORT_SECONDS:g} s; choose a shorter time"
            )
            return
        try:
            rows = _rows(by, filters, rows.next_cursor)
        except TobanError as error:
            yield _incomplete(error.message)
            return


def _incomplete(why: str) -> bytes:
    return f"{json.dumps({'incomplete': why})}\n".encode()
