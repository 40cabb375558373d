"""When a process that has ended is started again: at once after a long run, else after a wait that doubles. Pure."""

import signal
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The waits between starts, in seconds.

    The first restart is immediate. The next one waits `first_seconds`, and each further one twice as long, up to
    `longest_seconds`. After a run of `reset_seconds` the next restart is immediate again.
    """

    first_seconds: float = 1.0
    longest_seconds: float = 30.0
    reset_seconds: float = 60.0

    def wait(self, failures: int) -> float:
        """Seconds before the next start, after so many ends since the last long run."""
        if failures <= 1:
            return 0.0
        return min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures - 2, 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended: by an exit code or a signal; with neither, its parent was another process.

    `detail` is the last line of its log, or why it could not be started. `at` is the wall clock, in ISO 8601.
    """

    code: int | None = None
    signal: int | None = None
    detail: str = ""
    ran_seconds: float = 0.0
    at: str = ""

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed by {_signal_name(self.signal)} after {span(self.ran_seconds)}"
        if self.code is None and self.detail:
            return "could not be started"
        code = "unknown" if self.code is None else self.code
        return f"exit code {code} after {span(self.ran_seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One supervised process. Times are monotonic seconds.

    `since` is the last start while it runs, else the last end. `next_start` is None while it runs. `failures` counts
    the ends since the last long run, `restarts` all restarts.
    """

    since: float
    next_start: float | None = None
    restarts: int = 0
    failures: int = 0
    last_exit: Exit | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.next_start is None


def started(history: History | None, *, now: float) -> History:
    """After a start; the first one, without a history, is no restart."""
    if history is None:
        return History(since=now)
    return replace(history, since=now, next_start=None, restarts=history.restarts + 1)


def ended(history: History, cause: Exit, *, now: float, backoff: Backoff) -> History:
    """After the end of the running process, or after a start that failed: the time of the next start is fixed."""
    ran = now - history.since if history.running else 0.0
    failures = 1 if ran >= backoff.reset_seconds else history.failures + 1
    return replace(
        history,
        since=now,
        next_start=now + backoff.wait(failures),
        failures=failures,
        last_exit=replace(cause, ran_seconds=round(ran, 1)),
    )


def span(seconds: float) -> str:
    """A duration for people: 0.3 s, 12 s, 5 min, 3 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
