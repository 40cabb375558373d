"""The guards of jobs, as the executor sees them."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toban_domain.log_block import LogBlock
from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import FreezeTurn, JobNote
from toban_executor.decide.isolation import NO_SANDBOX, Isolation
from toban_executor.decide.models import AttemptEnd, CancelOrder, StartOrder
from toban_executor.decide.usage import Measured
from toban_executor.guard.launch import GuardSet
from toban_fencing.executor_lease import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What exists before gRPC is loaded: the locked state directory, the guards, and the earlier incarnations that have ended.

    `settled`: True for those that are proven empty. The setting gives at most `most_slots`: more cannot be started here. `isolation` is that of
    the guards.
    """

    state_dir: Path
    guards: GuardSet
    settled: dict[str, bool]
    most_slots: int
    isolation: Isolation = NO_SANDBOX


class GuardListener(Protocol):
    """Receives the reports of the guards, on the event loop's thread."""

    def started(self, key: AttemptKey, pid: int, at_ns: int) -> None:
        """The attempt has been running for a moment; of shorter ones only the end is reported."""
        ...

    def freeze_turned(self, turn: FreezeTurn) -> None:
        """An attempt was frozen or thawed, by its guard or in its place."""
        ...

    def noted(self, note: JobNote) -> None:
        """What a live job has said on its socket, or the step that it has reached."""
        ...

    def output(self, key: AttemptKey, block: LogBlock) -> None:
        """Lines of an attempt, in order, always before its end."""
        ...

    def unreachable(self, key: AttemptKey, processes: int) -> None:
        """So many processes of the attempt refuse signals: the guard cannot end them."""
        ...

    def ended(self, end: AttemptEnd) -> None:
        """The attempt is over and nothing of its tree is left."""
        ...

    def supervisor_gone(self) -> None:
        """The guard supervisor died. Each slot supervisor still enforces the lease of its job; one that dies has no successor."""
        ...

    def guards_gone(self) -> None:
        """A guard ended without a successor: the state of its job is unknown, the incarnation must end."""
        ...


class Guards(Protocol):
    """The slots of this incarnation."""

    def spawn(
        self,
        order: StartOrder,
        *,
        env: Mapping[str, str],
        programs: Sequence[str],
        deadline: Instant,
        lease_grace: float,
        freeze_max: float,
    ) -> None:
        """Give an attempt to a free slot; `programs` are the files to start for each step, empty = by the job's PATH."""
        ...

    async def measure(self) -> Mapping[AttemptKey, Measured]:
        """What the processes of the attempts use now that have been running for a moment."""
        ...

    def push_deadline(
        self,
        deadline: Instant,
        *,
        thaw: Collection[AttemptKey],
        frozen_seconds: Mapping[AttemptKey, float],
        freeze_max: float,
    ) -> None:
        """Send every busy guard the time until which it may let its job run; of frozen jobs only those in `thaw` go on.

        `frozen_seconds` is how long attempts were frozen in all, `freeze_max` how long one may stay frozen.
        """
        ...

    def kill(
        self, key: AttemptKey, *, cause: str, reason: str, grace: float | None, at_most: float = math.inf
    ) -> float | None:
        """SIGTERM now, SIGKILL after `grace` seconds (None = the order's own, `at_most` so many), for the whole tree.

        The seconds that it has; None when no slot has the attempt.
        """
        ...

    def cancel(self, order: CancelOrder) -> bool:
        """Begin to cancel the attempt, as the order has it; False when no slot has it."""
        ...

    def checkpoint_stored(self, key: AttemptKey, number: int, problem: str) -> None:
        """Answer the job whose checkpoint is committed, or cannot be, which `problem` says."""
        ...

    def enforce_lease(
        self, *, late: float, frozen: Collection[AttemptKey], over: Collection[AttemptKey], doubtful: bool
    ) -> None:
        """The lease ended `late` seconds ago: do from this process what guards that are stopped themselves have not done.

        `frozen` are known to be frozen, `over` of them for too long. `doubtful`: only the wall clock says that it ended, so nothing is killed
        that can be frozen.
        """
        ...


class GuardOutput(Protocol):
    """The flow of output from the guards."""

    def hold_output(self, hold: bool) -> None:
        """Stop (True) or resume reading output, so that jobs block in their writes. Starts and ends are never held back."""
        ...

    def ack_offsets(self) -> Mapping[str, int]:
        """Number of the last message of each guard that has sent more than is known to be on disk, by the guard's name."""
        ...

    def ack(self, offsets: Mapping[str, int]) -> None:
        """Messages up to these numbers are on disk; `offsets` as `ack_offsets` returned them."""
        ...


class GuardConnection(Protocol):
    """The connection to the guards."""

    def listen(self, listener: GuardListener) -> None:
        """Begin to read the reports of the guards."""
        ...

    def stop_reading(self) -> None:
        """Read no more reports; the guards keep them for the next incarnation."""
        ...

    async def close(self, timeout: float) -> bool:
        """End the guards; True when they have ended in order within `timeout` seconds, which proves that no job is left."""
        ...
