"""Follows the output of one run for one browser: line by line, over retries and outages, to the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toban_admin_web.decide import log_text
from toban_admin_web.decide.follow import Cursor, Next, Seen, after_reading
from toban_admin_web.decide.records import LogPart, Run
from toban_admin_web.decide.tones import is_over
from toban_admin_web.views.site import Site
from toban_domain.errors import TobanError

# One reading lasts at most this long, seconds: then the run's state is looked at, and whether the browser is still there.
READ_SECONDS = 3.0
# The same for a run that is over: its last lines are on their way.
LAST_READ_SECONDS = 0.5
PAUSE_SECONDS = 1.0
TROUBLE_SECONDS = 2.0
CALL_SECONDS = 3.0
# A browser opens its stream again after this, seconds.
STREAM_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event: lines, trouble, end, or quiet (nothing to tell). `cursor` is where to go on."""

    name: str
    cursor: Cursor
    data: Mapping[str, Any]


class Live:
    """One reader of one run's output, from `cursor` on."""

    def __init__(self, *, site: Site, run_id: int, cursor: Cursor) -> None:
        self._site = site
        self._run_id = run_id
        self._cursor = cursor
        self._sealed = False
        self._over_since: float | None = None

    def events(self) -> Iterator[LogEvent]:
        """Until the output is complete, the process stops, or STREAM_SECONDS have passed."""
        clock = self._site.clock
        ends_at = clock.monotonic() + STREAM_SECONDS
        while not self._site.stopping.is_set() and clock.monotonic() < ends_at:
            try:
                run = self._site.open_reader(CALL_SECONDS).run(self._run_id)
                yield from self._read(run)
            except TobanError as error:
                yield LogEvent("trouble", self._cursor, {"message": error.message})
                self._site.stopping.wait(TROUBLE_SECONDS)
                continue
            step, self._cursor = after_reading(self._seen(run))
            if step in (Next.END, Next.INCOMPLETE):
                yield LogEvent("end", self._cursor, {"state": run.state, "complete": step is Next.END})
                return
            yield LogEvent("quiet", self._cursor, {})
            if step is Next.WAIT:
                self._site.stopping.wait(PAUSE_SECONDS)

    def _read(self, run: Run) -> Iterator[LogEvent]:
        self._sealed = False
        if is_over(run.state) and self._over_since is None:
            self._over_since = self._site.clock.monotonic()
        attempts = {attempt.token: attempt.attempt for attempt in run.attempts}
        parts = self._site.logs.follow(
            self._run_id,
            token=self._cursor.token,
            from_seq=self._cursor.seq + 1,
            seconds=READ_SECONDS if self._over_since is None else LAST_READ_SECONDS,
        )
        for part in parts:
            if part.lines:
                self._cursor = Cursor(part.token, part.lines[-1].seq)
                yield LogEvent("lines", self._cursor, _data(part, attempts.get(part.token, 0)))
            if part.at_end:
                self._sealed = True
                if part.token > self._cursor.token:
                    self._cursor = Cursor(part.token, 0)
            if self._site.stopping.is_set():
                return

    def _seen(self, run: Run) -> Seen:
        now = self._site.clock.monotonic()
        return Seen(
            cursor=self._cursor,
            sealed=self._sealed,
            tokens=[attempt.token for attempt in run.attempts],
            over_seconds=None if self._over_since is None else now - self._over_since,
            has_output=self._cursor.seq > 0 or bool(run.last_line),
        )


def _data(part: LogPart, attempt: int) -> dict[str, Any]:
    """What the script needs: the token as text (it exceeds 2^53), and a row a line."""
    rows = [
        [line.seq, line.stream, line.at.isoformat() if line.at else "", log_text.clean(line.text), line.partial]
        for line in part.lines
    ]
    return {"token": str(part.token), "attempt": attempt, "lines": rows}
