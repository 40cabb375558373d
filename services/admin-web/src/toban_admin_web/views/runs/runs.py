"""The list of runs with filters, and one run with its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.api_models import Run, RunExplanation, RunPage, RunUsage
from toban_admin_web.decide.filter_line import KEYS, WrongPart, line_of, parse_line, suggested_parts
from toban_admin_web.decide.filters import LIMITS, parse_filter, wants_part
from toban_admin_web.decide.json_fields import indent, parse_progress
from toban_admin_web.decide.log_steps import step_lines
from toban_admin_web.decide.run_actions import ENDPOINTS, is_killed, run_actions, shown_dispatch
from toban_admin_web.decide.run_life import run_life, tone
from toban_admin_web.decide.status_styles import STATE_GROUPS, is_terminal
from toban_admin_web.decide.usage_chart import UsageChart, usage_chart
from toban_admin_web.views.people.session_gate import may, see_other
from toban_admin_web.views.runs.log_tail import LogTail
from toban_admin_web.views.view_context import context, page, read
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import ORIGINS, RunState
from toban_domain.state_times import state_spans

# Of a line of filters.
MAX_LINE = 1000

_AT_EXECUTOR = (RunState.RUNNING, RunState.CANCEL_REQUESTED)

views = Blueprint("runs", __name__)


@views.get("/runs")
def listed() -> Response:
    """Runs, newest first."""
    line = request.args.get("q", "").strip()[:MAX_LINE]
    wrong: Sequence[WrongPart] = ()
    if line:
        query, wrong = parse_line(line)
        filters = parse_filter(query)
        if not wrong:
            shown: dict[str, Any] = filters.url_query()
            return see_other(url_for("runs.listed", **shown))
    else:
        filters = parse_filter(request.args)
        line = line_of(filters)
    states = [state.value for state in RunState]
    runs = read("JobReader.ListRuns", RunPage, brief=True, **filters.fields())
    parts = suggested_parts(runs.runs)
    choices = {"states": states, "groups": list(STATE_GROUPS), "origins": ORIGINS, "limits": LIMITS}
    return page("runs", runs=runs, filters=filters, line=line, wrong=wrong, line_keys=KEYS, line_parts=parts, **choices)


@views.get("/runs/<id:run_id>")
def show(run_id: int) -> Response:
    """One run; a part of the page excludes the output, which the log stream updates."""
    run = read("JobReader.GetRun", Run, id=run_id)
    log = None if wants_part(request.args) else LogTail(run)
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
        actions=[
            name for name in run_actions(run) if may(ENDPOINTS[name], run.job, scope=run.scope, scope_id=run.scope_id)
        ],
        killed=is_killed(run),
        dispatch=dispatch,
        stays={span.event: span for span in spans},
        life=run_life(spans, run.scheduled_for, context().clock.wall()),
        tone=tone,
        # Lists of runs have the steps of the last attempt at the run.
        steps=() if dispatch is None else dispatch.steps or (run.steps if dispatch is run.attempts[-1] else ()),
        why=_why(run_id),
        usage=_usage(run),
        log=log,
        log_steps=step_lines(run),
        shown=int(dispatch.token) if dispatch else 0,
    )


def _usage(run: Run) -> UsageChart | None:
    """None for a run that no executor runs now, and where its executor does not answer."""
    if run.state not in _AT_EXECUTOR or run.started_at is None:
        return None
    try:
        return usage_chart(read("JobReader.GetRunUsage", RunUsage, id=run.id).samples)
    except TobanError:
        return None


def _why(run_id: int) -> RunExplanation | None:
    """None when coordinators cannot say it now: the rest of the page is needed most then."""
    try:
        return read("JobReader.ExplainRun", RunExplanation, id=run_id)
    except TobanError as error:
        if error.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED):
            raise
        return None
