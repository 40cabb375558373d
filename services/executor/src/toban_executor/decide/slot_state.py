"""The state of one slot of a guard: the attempt in it, its step, and how far its end has come."""

from __future__ import annotations

import math
from typing import NamedTuple

from toban_executor.decide.guard_types import DEFAULT_FREEZE_MAX, Cancel, ProcessEnd, Spawn
from toban_executor.decide.models import StepEnd
from toban_fencing.executor_lease import Instant


class Attempt(NamedTuple):
    """The attempt in the slot: its step, and how far its end has come. `started` is the moment of the order, `*_at` are CLOCK_BOOTTIME."""

    spawn: Spawn
    deadline: Instant
    started: Instant
    attempt_timeout_at: float = math.inf
    step_timeout_at: float = math.inf
    # When the silence of the job has lasted too long.
    heartbeat_at: float = math.inf
    step: int = 0
    step_started_wall: float = 0.0
    step_ends: tuple[StepEnd, ...] = ()
    # The process of the step; 0 = not there yet.
    pid: int = 0
    start_reported: bool = False
    # End of the step's main process; what it left behind may still run.
    main: ProcessEnd | None = None
    main_ended_wall: float = 0.0
    # Why the attempt is being ended; empty while it goes on.
    cause: str = ""
    reason: str = ""
    # When SIGKILL goes out (again); infinite while nothing is being ended.
    kill_at: float = math.inf
    # Seconds from SIGTERM to SIGKILL.
    grace: float = 0.0
    # A cancel that leaves the job time: no step follows, and SIGTERM goes out at `cancel_at` (infinite: not before the end of this step).
    cancel: Cancel | None = None
    cancel_at: float = math.inf
    unreachable_reported: bool = False
    freeze_max: float = DEFAULT_FREEZE_MAX
    # Since when it is being frozen, or is frozen; None while it runs. The total of earlier times.
    frozen_since: float | None = None
    frozen_seconds: float = 0.0
    freeze_reported: bool = False
    # Until when the tree must be verified frozen; infinite since the last check has found it so.
    freeze_by: float = math.inf
    # How often it has been checked in vain.
    freeze_checks: int = 0

    @property
    def token(self) -> int:
        """Fencing token of the attempt."""
        return self.spawn.order.key.token

    @property
    def freezes(self) -> bool:
        """True when the end of the lease freezes it."""
        return self.spawn.order.on_lease_loss == "freeze"

    @property
    def continues(self) -> bool:
        """True when it runs on at the end of the lease: two executions of its run do no harm."""
        return self.spawn.order.on_lease_loss == "continue"

    @property
    def suspended(self) -> bool:
        """True while it is frozen or being frozen, and nothing ends it."""
        return self.frozen_since is not None and self.undecided

    @property
    def undecided(self) -> bool:
        """True while nothing has begun to end the attempt, and its main process runs or another step would follow."""
        if self.cause:
            return False
        return self.main is None or (self.main.exit_code == 0 and self.step + 1 < len(self.spawn.order.steps))


class SlotState(NamedTuple):
    """One slot. Commands are ignored until a Reset names `unreset_losses` (0 = none is awaited)."""

    incarnation: str
    unreset_losses: int = 0
    attempt: Attempt | None = None
    # CLOCK_BOOTTIME since when output is held; None while it is read.
    held_since: float | None = None
    executor_closed: bool = False
