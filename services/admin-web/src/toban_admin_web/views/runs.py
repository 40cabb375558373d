"""Runs with filters, and one run with everything that is known of it."""

from __future__ import annotations

from dataclasses import replace

from flask import Blueprint, Response, request

from toban_admin_web.decide import log_text, opened
from toban_admin_web.decide.filters import LIMITS, parse_filter
from toban_admin_web.decide.records import LogLine, Run
from toban_admin_web.decide.tones import GROUPS, is_over
from toban_admin_web.views.site import page, reader, site, wants_part
from toban_domain.errors import TobanError
from toban_domain.run import RunState

# Lines of output that a page shows before its script takes over, and how long they may take, seconds.
TAIL_LINES = 500
LOG_SECONDS = 2.0
# How long after its end a run's output may still grow, seconds.
SETTLED_SECONDS = 60.0

views = Blueprint("runs", __name__)


@views.get("/runs")
def listed() -> Response:
    """Runs, newest first."""
    wanted = parse_filter(request.args)
    states = [state.value for state in RunState]
    return page(
        "runs", found=reader().runs(wanted.query()), wanted=wanted, states=states, groups=list(GROUPS), limits=LIMITS
    )


@views.get("/runs/<id:run_id>")
def show(run_id: int) -> Response:
    """One run; its output is added to whole pages only."""
    run = reader().run(run_id)
    log = None if wants_part() else _Output(run)
    return page(
        "run",
        run=run,
        over=is_over(run.state),
        progress=opened.progress(run.progress_json),
        payload=opened.pretty(run.payload_json or "{}"),
        log=log,
    )


class _Output:
    """The end of a run's output as the page shows it; a log-archiver that is away or slow costs LOG_SECONDS and no page."""

    def __init__(self, run: Run) -> None:
        self.trouble = ""
        lines: list[LogLine] = []
        try:
            for part in site().logs.tail(run.id, lines=TAIL_LINES, seconds=LOG_SECONDS):
                lines += part.lines
        except TobanError as error:
            self.trouble = error.message
        self.lines = [_shown(line) for line in log_text.joined(lines)]
        self.after = f"{lines[-1].token}:{lines[-1].seq}" if lines else "0:0"
        self.partial = bool(lines) and lines[-1].partial
        first = min((attempt.token for attempt in run.attempts), default=0)
        self.cut = bool(lines) and (lines[0].seq > 1 or lines[0].token > first > 0)
        self.attempts = {attempt.token: attempt.attempt for attempt in run.attempts}
        self.live = not _settled(run)


def _shown(line: LogLine) -> LogLine:
    return replace(line, text=log_text.clean(line.text))


def _settled(run: Run) -> bool:
    """Over for so long that its output cannot grow any more."""
    if not is_over(run.state):
        return False
    return run.finished_at is None or (site().clock.wall() - run.finished_at).total_seconds() > SETTLED_SECONDS
