"""A run's output from a cursor on, across retries of the run and outages, until it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.log_blocks import is_marker
from toban_admin_web.decide.log_cursor import Cursor, NextStep, ReadState, next_step
from toban_admin_web.decide.log_lines import LogLine, LogPart
from toban_admin_web.decide.log_text import clean, coloured
from toban_admin_web.decide.status_styles import is_terminal
from toban_admin_web.ports.api import Caller
from toban_admin_web.ports.logs import ReadTicket
from toban_admin_web.ports.people import Credential
from toban_admin_web.views.view_context import ViewContext, read_ticket
from toban_domain.errors import ErrorCode, TobanError

# Longest read, seconds: after it the stream checks the run's state and whether the browser is still connected.
READ_SECONDS = 3.0
# The same for an ended run, whose last lines are about to arrive.
LAST_READ_SECONDS = 0.5
PAUSE_SECONDS = 1.0
RETRY_SECONDS = 2.0
# Longest stream, seconds; the browser then reconnects.
STREAM_SECONDS = 1800.0
# A read ticket is good for a minute; each read is admitted by GetRun as well, seconds.
TICKET_SECONDS = 30.0
# The person may not read this any more; the browser asks again and is sent to the sign-in.
_ENDED = frozenset({ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED})


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event: lines, unavailable, end or idle (nothing new). `cursor` is the position to resume from."""

    name: str
    cursor: Cursor
    data: Mapping[str, Any]


class LogStream:
    """One reader of one run's output, from `cursor` on. `run` is as it was a moment ago. `for_page`: rows are those of `page_row`."""

    def __init__(
        self, *, context: ViewContext, run: Run, cursor: Cursor, credential: Credential, for_page: bool = False
    ) -> None:
        self._row = page_row if for_page else _plain_row
        self._context = context
        self._credential = credential
        self._run_id = run.id
        self._first: Run | None = run
        self._cursor = cursor
        self._sealed = False
        self._ended_at: float | None = None
        self._ticket: ReadTicket | None = None
        self._ticket_until = 0.0

    def events(self) -> Iterator[LogEvent]:
        """Until the output is complete, the process stops, or STREAM_SECONDS have passed."""
        clock, stopping = self._context.clock, self._context.stopping
        ends_at = clock.monotonic() + STREAM_SECONDS
        while not stopping.is_set() and clock.monotonic() < ends_at:
            try:
                caller = self._context.open_caller(self._credential)
                run = self._first or caller.read("JobReader.GetRun", Run, {"id": self._run_id})
                self._first = None
                yield from self._read(run, caller)
            except TobanError as error:
                self._ticket = None
                yield LogEvent("unavailable", self._cursor, {"message": error.message})
                if error.code in _ENDED:
                    return
                stopping.wait(RETRY_SECONDS)
                continue
            step, self._cursor = next_step(self._state(run))
            if step in (NextStep.END, NextStep.INCOMPLETE):
                yield LogEvent("end", self._cursor, {"state": run.state, "complete": step is NextStep.END})
                return
            yield LogEvent("idle", self._cursor, {})
            if step is NextStep.WAIT:
                stopping.wait(PAUSE_SECONDS)

    def _read(self, run: Run, caller: Caller) -> Iterator[LogEvent]:
        self._sealed = False
        if is_terminal(run.state) and self._ended_at is None:
            self._ended_at = self._context.clock.monotonic()
        attempts = {int(attempt.token): number for number, attempt in enumerate(run.attempts, 1)}
        parts = self._context.logs.follow(
            self._run_id,
            self._good_ticket(caller),
            token=self._cursor.token,
            from_seq=self._cursor.seq + 1,
            seconds=READ_SECONDS if self._ended_at is None else LAST_READ_SECONDS,
        )
        for part in parts:
            if part.lines:
                self._cursor = Cursor(part.token, part.lines[-1].seq)
                yield LogEvent("lines", self._cursor, _data(part, attempts.get(part.token, 0), self._row))
            if part.at_end:
                self._sealed = True
                if part.token > self._cursor.token:
                    self._cursor = Cursor(part.token, 0)
            if self._context.stopping.is_set():
                return

    def _good_ticket(self, caller: Caller) -> ReadTicket:
        now = self._context.clock.monotonic()
        if self._ticket is None or now >= self._ticket_until:
            self._ticket, self._ticket_until = read_ticket(self._run_id, by=caller), now + TICKET_SECONDS
        return self._ticket

    def _state(self, run: Run) -> ReadState:
        return ReadState(
            cursor=self._cursor,
            sealed=self._sealed,
            tokens=[int(attempt.token) for attempt in run.attempts],
            ended_for=None if self._ended_at is None else self._context.clock.monotonic() - self._ended_at,
            has_output=self._cursor.seq > 0 or bool(run.last_line),
        )


def page_row(line: LogLine) -> list[Any]:
    """A line for the script of the page: with its colours, its level and whether it is a marker."""
    return [*_plain_row(line)[:3], coloured(line.text), line.partial, line.level, is_marker(line)]


def _plain_row(line: LogLine) -> list[Any]:
    return [line.seq, line.stream, line.at.isoformat() if line.at else "", clean(line.text), line.partial]


def _data(part: LogPart, attempt: int, row: Callable[[LogLine], list[Any]]) -> dict[str, Any]:
    """The event's data: the token as text (it exceeds 2^53), one row per line, and how many dropped lines they count."""
    dropped = sum(line.dropped_lines for line in part.lines)
    return {
        "token": str(part.token),
        "attempt": attempt,
        "lines": [row(line) for line in part.lines],
        "dropped": dropped,
    }
