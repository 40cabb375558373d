"""How an attempt ended, and the key that names an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from toban_domain.progress import Progress


class AttemptKey(NamedTuple):
    """A run and the fencing token of its dispatch."""

    run_id: int
    token: int


class AttemptState(StrEnum):
    """State of an attempt on its executor."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    CANCELLING = "cancelling"
    FINISHED = "finished"
    FROZEN = "frozen"


class OutcomeKind(StrEnum):
    """Result of one attempt; a run may be retried after FAILED and TIMED_OUT."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"


class Reason(StrEnum):
    """Machine-readable cause of an outcome."""

    NONE = ""
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    SPAWN_FAILED = "spawn_failed"
    CONTINUATION_REFUSED = "continuation_refused"
    LEASE_LOST = "lease_lost"
    FORCED_SHUTDOWN = "forced_shutdown"
    RESULT_INVALID = "result_invalid"
    WORKER_FAILED = "worker_failed"


# The job's executor was lost or stopped; such an attempt uses no retry and is repeated up to max_lost (docs/fencing.md 3.7, 3.8).
LOST_REASONS = frozenset({Reason.CONTINUATION_REFUSED, Reason.LEASE_LOST, Reason.FORCED_SHUTDOWN})


def failure_text(reason: str, error_summary: str, last_line: str) -> str:
    """What explains a failure best in one line: an exit code alone says nothing, so the last line of the output does when there is one."""
    return (last_line if reason == Reason.EXIT_CODE else "") or error_summary or reason


class ErrorLine(NamedTuple):
    """A line of the output of a failed attempt: its number in the log, and the beginning of its text."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step of an attempt that was started; `index` counts from 0. Its lines of output are `seq_from` to `seq_to`, none when that is lower."""

    index: int
    started_at: datetime
    finished_at: datetime | None = None
    exit_code: int | None = None
    signal: int | None = None
    seq_from: int = 0
    seq_to: int = 0

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {
            "index": self.index,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat() if self.finished_at else None,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "seq_from": self.seq_from,
            "seq_to": self.seq_to,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepResult:
        """The inverse. Raises ValueError, TypeError or KeyError for anything else."""
        finished = data["finished_at"]
        return cls(
            index=int(data["index"]),
            started_at=datetime.fromisoformat(data["started_at"]),
            finished_at=datetime.fromisoformat(finished) if finished else None,
            exit_code=data["exit_code"],
            signal=data["signal"],
            seq_from=int(data["seq_from"]),
            seq_to=int(data["seq_to"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one attempt. Times are the executor's wall clock in UTC; `last_seq` is the number of its last log line (0 = none);
    `progress` is the last one that the job reported. `result_json` (JSON) and `log_ref` are what the job has set; `steps` those of a job
    that has more than one. `error_lines` are the last lines of stderr of a failed attempt, of its output when it wrote none there."""

    kind: OutcomeKind
    reason: Reason = Reason.NONE
    exit_code: int | None = None
    signal: int | None = None
    error_summary: str = ""
    started_at: datetime | None = None
    finished_at: datetime
    last_seq: int = 0
    tree_empty: bool = True
    last_line: str = ""
    progress: Progress | None = None
    result_json: str = ""
    log_ref: str = ""
    steps: tuple[StepResult, ...] = ()
    # Whether the definition has a schema for the result.
    result_expected: bool = False
    error_lines: tuple[ErrorLine, ...] = ()
    # The executor had accepted the attempt and has given it back.
    never_started: bool = False

    @property
    def lost(self) -> bool:
        """Whether the attempt ended because its executor was lost or stopped."""
        return self.reason in LOST_REASONS
