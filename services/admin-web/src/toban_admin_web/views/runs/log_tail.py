"""The last lines of a run's output, for the page of the run."""

from __future__ import annotations

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.log_lines import LogLine
from toban_admin_web.decide.status_styles import is_terminal
from toban_admin_web.ports.logs import ReadTicket
from toban_admin_web.views.runs.log_rows import log_rows
from toban_admin_web.views.view_context import context, read_ticket
from toban_domain.errors import TobanError

# Lines of output in a page before its script follows the log, and the time limit for reading them, seconds.
TAIL_LINES = 500
LOG_SECONDS = 2.0
# Output of an ended run may still arrive for this long, seconds.
LATE_OUTPUT_SECONDS = 60.0


class LogTail:
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
        self.rows = log_rows(lines, run)
        self.cursor = f"{lines[-1].token}:{lines[-1].seq}" if lines else "0:0"
        self.partial = bool(lines) and lines[-1].partial
        first = min((int(attempt.token) for attempt in run.attempts), default=0)
        self.truncated = bool(lines) and (lines[0].seq > 1 or lines[0].token > first > 0)
        # Before this line the page has none.
        self.start = f"{lines[0].token}:{lines[0].seq}" if lines else "0:0"
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
