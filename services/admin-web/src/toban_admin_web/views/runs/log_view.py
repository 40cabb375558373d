"""The log beyond the last lines: blocks of it and searches for the script of the page, and a page of both that needs no script."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, abort, jsonify, request

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.log_blocks import (
    MOST_OF_A_LINE,
    BlockQuery,
    LineFilter,
    line_reference,
    parse_block_query,
    parse_line_filter,
)
from toban_admin_web.decide.log_cursor import Cursor, parse_cursor
from toban_admin_web.decide.log_find import PAGE_HITS, LogHits, LogQuery, parse_log_query, parse_page
from toban_admin_web.decide.log_lines import LogLine
from toban_admin_web.views.runs.log_reads import LogReads
from toban_admin_web.views.runs.log_rows import LogRow, log_rows, without_repeats
from toban_admin_web.views.runs.log_stream import page_row
from toban_admin_web.views.stream_response import occupied
from toban_admin_web.views.view_context import page, read
from toban_domain.errors import ErrorCode, TobanError

BLOCK_SECONDS = 5.0
SEARCH_SECONDS = 20.0
# Lines before and after a hit, and of a page around a line.
CONTEXT_LINES = 2
PAGE_LINES = 200

views = Blueprint("log_view", __name__)


@views.get("/runs/<id:run_id>/log/lines")
def lines(run_id: int) -> Response:
    """A block of lines as JSON: ?after=token:seq, ?before=token:seq or =end, ?around=token:seq; of ?stream= and at least ?level=."""
    query = parse_block_query(request.args, _wanted())
    if query is None:
        abort(404)
    run = read("JobReader.GetRun", Run, id=run_id)
    block = LogReads(run, seconds=BLOCK_SECONDS).block(query)
    numbers = {int(attempt.token): number for number, attempt in enumerate(run.attempts, 1)}
    parts: list[dict[str, Any]] = []
    for line in block.lines:
        if not parts or parts[-1]["token"] != str(line.token):
            parts.append({"token": str(line.token), "attempt": numbers.get(line.token, 0), "lines": []})
        row = page_row(line)
        # One character more tells the script that there is more.
        row[3] = row[3][: MOST_OF_A_LINE + 1]
        parts[-1]["lines"].append(row)
    return jsonify(parts=parts, start=block.start, end=block.end)


@views.get("/runs/<id:run_id>/log/search")
def search(run_id: int) -> Response:
    """The lines with ?find= as JSON: [token, number] of each, as far as they are counted; `words` is an expression for what to mark in them."""
    query = parse_log_query(request.args, _wanted())
    if query is None:
        abort(404)
    run = read("JobReader.GetRun", Run, id=run_id)
    try:
        found = _find(run, query)
    except TobanError as error:
        if error.code is not ErrorCode.INVALID_ARGUMENT:
            raise
        return jsonify(hits=[], count="", whole=False, error=error.message)
    hits = [[str(line.token), line.seq] for line in found.lines]
    marks = {"words": query.words, "exact": query.exact}
    return jsonify(hits=hits, count=found.count, whole=found.whole, error="", **marks)


@views.get("/runs/<id:run_id>/log")
def show(run_id: int) -> Response:
    """Lines that contain ?find=, or those around ?line=120 or ?at=token:seq, after ?after=, before ?before=; the first lines without any."""
    run = read("JobReader.GetRun", Run, id=run_id)
    query = parse_log_query(request.args, _wanted())
    shown = _Hits(run, query) if query else _Lines(run)
    return page("run_log", run=run, query=query, shown=shown, wanted=_wanted())


class _Hits:
    """A page of the hits of a search."""

    def __init__(self, run: Run, query: LogQuery) -> None:
        self.number = parse_page(request.args.get("page", ""))
        self.error = ""
        self.groups: list[list[LogRow]] = []
        self.found: LogHits | None = None
        self.pages = 1
        try:
            self.found = _find(run, query)
            on_page = self.found.lines[(self.number - 1) * PAGE_HITS : self.number * PAGE_HITS]
            self.pages = max(1, -(-len(self.found.lines) // PAGE_HITS))
            marked = frozenset((line.token, line.seq) for line in on_page)
            around = LogReads(run, seconds=BLOCK_SECONDS).around(on_page, CONTEXT_LINES) if on_page else []
            self.groups = without_repeats([log_rows(group, run, marked) for group in around])
        except TobanError as error:
            self.error = _shown_error(error)


class _Lines:
    """A page of consecutive lines."""

    def __init__(self, run: Run) -> None:
        self.error = ""
        self.groups: list[list[LogRow]] = []
        self.before = self.after = ""
        tokens = [int(attempt.token) for attempt in run.attempts]
        text = request.args.get("line", "")
        self.missing = False
        at: Cursor | None = parse_cursor(request.args.get("at", ""))
        if text:
            at = line_reference(text, tokens, shown=tokens[-1] if tokens else 0)
            self.missing = at is None
        side = next(
            (one for one in ("after", "before") if one in request.args), "around" if at and at.token else "after"
        )
        if side in request.args:
            at = parse_cursor(request.args[side])
        query = BlockQuery(side=side, at=at or Cursor(), lines=PAGE_LINES, wanted=_wanted())
        try:
            block = LogReads(run, seconds=BLOCK_SECONDS).block(query)
        except TobanError as error:
            self.error = _shown_error(error)
            return
        marked = frozenset({(at.token, at.seq)} if at and side == "around" else ())
        rows = log_rows(block.lines, run, marked)
        self.groups = [rows] if rows else []
        if rows and not block.start:
            self.before = _position(block.lines[0])
        if rows and not block.end:
            self.after = _position(block.lines[-1])


def _find(run: Run, query: LogQuery) -> LogHits:
    with occupied():
        return LogReads(run, seconds=SEARCH_SECONDS).find(query)


def _wanted() -> LineFilter:
    return parse_line_filter(request.args.getlist("stream"), request.args.get("level", ""))


def _position(line: LogLine) -> str:
    return f"{line.token}:{line.seq}"


def _shown_error(error: TobanError) -> str:
    if error.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED):
        raise error
    return error.message
