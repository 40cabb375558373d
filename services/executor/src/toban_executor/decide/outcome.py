"""What the end of an attempt means for its run."""

from datetime import UTC, datetime, timedelta

from toban_domain.outcome import Outcome, OutcomeKind, Reason
from toban_executor.decide.models import AttemptEnd

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Names of signals that end programs often; the number alone says too little.
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


def outcome_of(end: AttemptEnd) -> Outcome:
    """The outcome of an attempt whose tree is empty."""
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
    )


def _verdict(end: AttemptEnd) -> tuple[OutcomeKind, Reason, str]:
    if end.cause:
        kind, reason = _BY_CAUSE.get(end.cause, (OutcomeKind.FAILED, Reason.LEASE_LOST))
        return kind, reason, end.reason
    if end.signal is not None:
        return OutcomeKind.FAILED, Reason.SIGNAL, f"killed by {_SIGNALS.get(end.signal, 'signal')} ({end.signal})"
    if end.exit_code:
        return OutcomeKind.FAILED, Reason.EXIT_CODE, f"exit code {end.exit_code}"
    return OutcomeKind.SUCCEEDED, Reason.NONE, ""


def at(nanoseconds: int) -> datetime:
    """Unix nanoseconds as UTC, cut to microseconds."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
