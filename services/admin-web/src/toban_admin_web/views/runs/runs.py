"""The list of runs with filters, and one run with its output."""

from __future__ import annotations

from dataclasses import replace

from flask import Blueprint, Response, g, request

from toban_admin_web.decide.api_models import Run, RunExplanation, RunPage
from toban_admin_web.decide.api_rules import may_try
from toban_admin_web.decide.filters import LIMITS, parse_filter, wants_part
from toban_admin_web.decide.json_fields import indent, parse_progress
from toban_admin_web.decide.log_lines import LogLine
from toban_admin_web.decide.log_text import clean, join_partial
from toban_admin_web.decide.run_actions import ENDPOINTS, is_killed, run_actions, shown_dispatch
from toban_admin_web.decide.status_styles import STATE_GROUPS, is_terminal
from toban_admin_web.ports.logs import ReadTicket
from toban_admin_web.views.view_context import context, page, read, read_ticket
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import ORIGINS, RunState
from toban_domain.state_times import state_spans, state_totals

# Lines of output in a page before its script follows the log, and the time limit for reading them, seconds.
TAIL_LINES = 500
LOG_SECONDS = 2.0
# Of a longer line the page shows this much, characters.
MOST_OF_A_LINE = 10_000
# Output of an ended run may still arrive for this long, seconds.
LATE_OUTPUT_SECONDS = 60.0

views = Blueprint("runs", __name__)


@views.get("/runs")
def listed() -> Response:
    """Runs, newest first."""
    filters = parse_filter(request.args)
    states = [state.value for state in RunState]
    runs = read("JobReader.ListRuns", RunPage, **filters.fields())
    choices = {"states": states, "groups": list(STATE_GROUPS), "origins": ORIGINS, "limits": LIMITS}
    return page("runs", runs=runs, filters=filters, **choices)


@views.get("/runs/<id:run_id>")
def show(run_id: int) -> Response:
    """One run; a part of the page excludes the output, which the log stream updates."""
    run = read("JobReader.GetRun", Run, id=run_id)
    log = None if wants_part(request.args) else _LogTail(run)
    dispatch = shown_dispatch(run, request.args.get("dispatch", ""))
    begun = [attempt.started_at for attempt in run.attempts]
    spans = state_spans(((event.at, event.to_state) for event in run.events), run.state, begun)
    return page(
        "run",
        run=run,
        ended=is_terminal(run.state),
        progress=parse_progress(run.progress, run.started_at),
        payload=indent(run.payload or {}),
        result="" if run.result is None else indent(run.result),
        actions=[name for name in run_actions(run) if may_try(g.person.role, ENDPOINTS[name])],
        killed=is_killed(run),
        dispatch=dispatch,
        stays={span.event: span for span in spans},
        state_totals=state_totals(spans, context().clock.wall()),
        # Lists of runs have the steps of the last attempt at the run.
        steps=() if dispatch is None else dispatch.steps or (run.steps if dispatch is run.attempts[-1] else ()),
        why=_why(run_id),
        log=log,
    )


def _why(run_id: int) -> RunExplanation | None:
    """None when coordinators cannot say it now: the rest of the page is needed most then."""
    try:
        return read("JobReader.ExplainRun", RunExplanation, id=run_id)
    except TobanError as error:
        if error.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED):
            raise
        return None


class _LogTail:
    """The last lines of a run's output; an unreachable or slow log-archiver delays the page by LOG_SECONDS at most."""

    def __init__(self, run: Run) -> None:
        self.error = ""
        lines: list[LogLine] = []
        ends_at = context().clock.monotonic() + LOG_SECONDS
        try:
            ticket = read_ticket(run.id)
            for part in context().logs.tail(run.id, ticket, lines=TAIL_LINES, seconds=LOG_SECONDS):
                lines += part.lines
        except TobanError as error:
            self.error = error.message
        self.lines = [replace(line, text=clean(line.text)) for line in join_partial(lines)]
        self.most = MOST_OF_A_LINE
        self.cursor = f"{lines[-1].token}:{lines[-1].seq}" if lines else "0:0"
        self.partial = bool(lines) and lines[-1].partial
        first = min((int(attempt.token) for attempt in run.attempts), default=0)
        self.truncated = bool(lines) and (lines[0].seq > 1 or lines[0].token > first > 0)
        self.attempts = {int(attempt.token): number for number, attempt in enumerate(run.attempts, 1)}
        self.live = not _is_output_final(run)
        # How many lines limits dropped so far; None when that cannot be read now.
        self.dropped: int | None = sum(line.dropped_lines for line in lines)
        if self.truncated:
            self.dropped = _dropped(run.id, ticket, seconds=ends_at - context().clock.monotonic())


def _dropped(run_id: int, ticket: ReadTicket, *, seconds: float) -> int | None:
    """How many lines of a run's stored output limits dropped; None when it takes longer."""
    if seconds <= 0:
        return None
    try:
        parts = context().logs.select(run_id, ticket, {"streams": ["system"]}, seconds=seconds)
        return sum(line.dropped_lines for part in parts for line in part.lines)
    except TobanError:
        return None


def _is_output_final(run: Run) -> bool:
    """Whether the run ended so long ago that no more output can arrive."""
    if not is_terminal(run.state):
        return False
    if run.finished_at is None:
        return True
    return (context().clock.wall() - run.finished_at).total_seconds() > LATE_OUTPUT_SECONDS
