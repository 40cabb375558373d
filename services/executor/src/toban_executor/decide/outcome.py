"""What the end of an attempt means for its run, and which outcomes wait for the last lines of their attempts."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind, Reason, StepResult
from toban_domain.progress import Progress
from toban_executor.decide.models import AttemptEnd, Report, StepEnd

RETURNED = "returned"
"""The cause of an attempt that was accepted, has waited for a slot, and will never start here."""

OUTCOME_TIMEOUT_SECONDS = 3.0
"""How long an outcome waits for a disk that refuses or hangs."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Names of signals that often end programs; a number alone is hard to read.
_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL"}
_SIGNALS |= {11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS"}

_BY_CAUSE = {
    "timeout": (OutcomeKind.TIMED_OUT, Reason.TIMEOUT),
    "cancel": (OutcomeKind.CANCELED, Reason.CANCELED),
    "spawn_failed": (OutcomeKind.FAILED, Reason.SPAWN_FAILED),
    "lease": (OutcomeKind.FAILED, Reason.CONTINUATION_REFUSED),
    "shutdown": (OutcomeKind.FAILED, Reason.FORCED_SHUTDOWN),
}
"""Every other cause (a guard that died, an attempt that PostgreSQL does not hold) is a loss by the executor's fault."""


def outcome_of(end: AttemptEnd, progress: Progress | None = None) -> Outcome:
    """The outcome of an attempt whose tree is empty, with the last `progress` that its job has shown."""
    kind, reason, summary = _verdict(end)
    if summary and end.steps > 1:
        summary = f"step {end.step + 1} of {end.steps}: {summary}"
    return Outcome(
        kind=kind,
        reason=reason,
        exit_code=end.exit_code,
        signal=end.signal,
        error_summary=" ".join(summary.split())[:500],
        started_at=at(end.started_ns) if end.started_ns else None,
        finished_at=at(end.finished_ns),
        last_seq=end.last_seq,
        tree_empty=True,
        last_line=end.last_line,
        error_lines=end.error_lines,
        progress=progress,
        result_json=end.result_json,
        log_ref=end.log_ref,
        steps=tuple(step_result(step) for step in end.step_ends),
        result_expected=end.result_expected,
        never_started=end.cause == RETURNED,
    )


def step_result(step: StepEnd) -> StepResult:
    """A step as coordinators have it."""
    return StepResult(
        index=step.step,
        started_at=at(step.started_ns),
        finished_at=at(step.finished_ns) if step.finished_ns else None,
        exit_code=step.exit_code,
        signal=step.signal,
        seq_from=step.seq_from,
        seq_to=step.seq_to,
    )


def _verdict(end: AttemptEnd) -> tuple[OutcomeKind, Reason, str]:
    if end.cause:
        kind, reason = _BY_CAUSE.get(end.cause, (OutcomeKind.FAILED, Reason.LEASE_LOST))
        return kind, reason, end.reason
    if end.signal is not None:
        return OutcomeKind.FAILED, Reason.SIGNAL, f"killed by {_SIGNALS.get(end.signal, 'signal')} ({end.signal})"
    if end.exit_code == 0:
        return OutcomeKind.SUCCEEDED, Reason.NONE, ""
    return OutcomeKind.FAILED, Reason.EXIT_CODE, f"exit code {end.exit_code}"


def at(nanoseconds: int) -> datetime:
    """Unix nanoseconds as UTC, cut to microseconds."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


class PendingOutcomes:
    """Outcomes that wait until the last lines of their attempts are on disk.

    So a run that the cluster knows as ended has its whole log, even if this process dies a moment later. The wait for a disk
    that refuses or hangs is limited: an outcome that is never reported would keep its run going for ever. Each outcome is
    returned once: by `stored`, `overdue` or `all`, whichever comes first.
    """

    def __init__(self) -> None:
        self._waiting: dict[AttemptKey, tuple[Report, float]] = {}

    def wait(self, report: Report, now: float) -> None:
        """Not all lines of its attempt are on disk at `now` (seconds of a monotonic clock)."""
        self._waiting[report.key] = report, now

    @property
    def waiting(self) -> list[Report]:
        """Outcomes in order of arrival."""
        return [report for report, _since in self._waiting.values()]

    def stored(self, keys: Iterable[AttemptKey]) -> list[Report]:
        """These attempts have every line and their outcome on disk."""
        return [self._waiting.pop(key)[0] for key in keys if key in self._waiting]

    def overdue(self, now: float) -> list[Report]:
        """Outcomes that have waited for OUTCOME_TIMEOUT_SECONDS at `now`."""
        return self.stored([key for key, (_, since) in self._waiting.items() if now - since >= OUTCOME_TIMEOUT_SECONDS])

    def all(self) -> list[Report]:
        """This process ends: all that wait."""
        return self.stored(list(self._waiting))
