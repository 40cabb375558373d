"""Searches the output of all runs of a job: a part in each request, as far as one call of a log-archiver goes."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from flask import Response
from pydantic import AwareDatetime, Field

from toban_admin_web.decide.answer import Answer, BigNumber, Page
from toban_admin_web.decide.api_models import Job, RunPage
from toban_admin_web.decide.log_lines import LogPlace
from toban_admin_web.decide.request_input import MAX_CURSOR, Input
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.api.inputs import invalid
from toban_admin_web.views.stream_response import stream_response
from toban_admin_web.views.view_context import context, read, read_ticket
from toban_domain.errors import ErrorCode, TobanError

RUNS_PAGE = 100
# Pages of runs that are newer than the search's place, and that one request reads to find its place.
NEWER_PAGES = 20
SEARCH_SECONDS = 30.0
# Clocks of executors, which date lines, and of PostgreSQL, which dates runs, may differ by less than this.
CLOCK = timedelta(seconds=60)
_CURSOR = re.compile(r"([0-9]{1,18})\.([0-9]{1,19})\.([0-9]{1,18})~(.*)")


class SearchQuery(Input):
    """Which lines. All parts must hold."""

    grep: str = Field("", max_length=1000, description="Lines that contain this text.")
    regex: bool = Field(False, description="`grep` is an expression of RE2.")
    stream: list[Literal["stdout", "stderr", "system"]] = Field(default_factory=list)
    level: str = Field("", max_length=20, description="At least this level: trace, debug, info, warning, error, fatal.")
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    limit: int = Field(200, ge=1, le=1000, description="Lines at most.")
    cursor: str = Field("", max_length=MAX_CURSOR, description="`next_cursor` of the part before; empty = first part.")


class FoundLine(Answer):
    """One line."""

    run_id: int
    token: BigNumber
    seq: int
    at: datetime | None
    stream: str
    text: str
    partial: bool = Field(description="The next line of the attempt and stream continues it.")


class LogSearch(Page):
    """A part of a search. It can be without a line and not be the last."""

    lines: list[FoundLine]
    runs: int = Field(description="Runs that this part searched to their end.")
    bytes: int = Field(description="Text that this part searched.")
    expired_attempts: int = Field(description="Attempts with deleted lines (log_retention_days_archive).")


def _search(call: Call) -> Response:
    def body() -> Any:
        return iter([_part(call, call.query).model_dump_json().encode()])

    return stream_response(body, "application/json")


def _part(call: Call, query: SearchQuery) -> LogSearch:
    # Raises JOB_NOT_FOUND and PERMISSION_DENIED.
    job = read("JobReader.GetJob", Job, name=call.path["name"])
    after, runs_cursor = _read_cursor(query.cursor)
    page = _runs_from(call, query, job.name, after, runs_cursor)
    if not page.ids:
        further = _place(after, page.further) if page.further else ""
        return LogSearch(lines=[], runs=0, bytes=0, expired_attempts=0, next_cursor=further)
    fields = {**query.model_dump(exclude={"cursor", "stream"}), "streams": query.stream}
    found = context().logs.search(
        page.ids,
        read_ticket(*page.ids),
        fields,
        after=after if after and after.run in page.ids else None,
        seconds=SEARCH_SECONDS,
    )
    # A search that was cut before its first line keeps the place that it began with.
    further = _place(found.place or after, page.cursor) if found.cut else page.further and _place(None, page.further)
    return LogSearch(
        lines=[_line(run, line) for run, line in found.lines],
        runs=found.runs,
        bytes=found.bytes,
        expired_attempts=found.expired_attempts,
        next_cursor=further,
    )


class _Runs(NamedTuple):
    """Runs to search, the cursor of their page, and that of the next one ("" = there is none)."""

    ids: list[int]
    cursor: str
    further: str


def _runs_from(call: Call, query: SearchQuery, job: str, after: LogPlace | None, cursor: str) -> _Runs:
    """The page of runs that a search goes on with. Runs that are newer than its place began after it: with enough of them the place is on a later
    page than it was, or its run was deleted meanwhile."""
    for number in range(NEWER_PAGES):
        fields = {
            "job": job,
            "page": {"limit": RUNS_PAGE, "cursor": cursor},
            "active_from": query.since and query.since - CLOCK,
            "active_until": query.until and query.until + CLOCK,
        }
        try:
            page = call.ask(RunPage, fields)
        except TobanError as error:
            if not number or error.code not in (ErrorCode.DEADLINE_EXCEEDED, ErrorCode.UNAVAILABLE):
                raise
            # The pages so far have used up the time of the request: the next one goes on from here.
            break
        ids = [run.id for run in page.runs if after is None or run.id <= after.run]
        if ids or not page.next_cursor:
            return _Runs(ids, cursor, page.next_cursor)
        cursor = page.next_cursor
    return _Runs([], cursor, cursor)


def _line(run: int, line: Any) -> FoundLine:
    return FoundLine(
        run_id=run,
        token=line.token,
        seq=line.seq,
        at=line.at,
        stream=line.stream,
        text=line.text,
        partial=line.partial,
    )


def _read_cursor(text: str) -> tuple[LogPlace | None, str]:
    """The place in a run, and the cursor of the page of runs."""
    if not text:
        return None, ""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise invalid("query.cursor", "is not the next_cursor of an earlier part")
    run, token, seq = (int(found[n]) for n in (1, 2, 3))
    if token >= 1 << 63:
        raise invalid("query.cursor", "is not the next_cursor of an earlier part")
    return (LogPlace(run=run, token=token, seq=seq) if run else None), found[4]


def _place(place: LogPlace | None, runs_cursor: str) -> str:
    return f"{place.run}.{place.token}.{place.seq}~{runs_cursor}" if place else f"0.0.0~{runs_cursor}"


ENDPOINTS = (
    Endpoint(
        route="GET /jobs/{name}/logs",
        summary="Searches the output of all runs of a job, a part at a time: the newest run first, its lines in order.",
        query=SearchQuery,
        answer=LogSearch,
        handle=_search,
    ),
)
