"""What a keeper knows about the attempt that it runs."""

from dataclasses import dataclass, field
from typing import Any

from toban_executor.guard.clock import boottime, wall, wall_ns
from toban_executor.guard.intake import Intake, Stream

KILL_ALLOWANCE = 0.05
"""Seconds before the lease's deadline at which SIGKILL goes out, so that nothing lives at the deadline."""


@dataclass(slots=True, kw_only=True)
class Lease:
    """A deadline on both clocks; whichever has run further decides."""

    boot: float
    wall: float

    def left(self) -> float:
        """Seconds until the deadline, negative when it has passed."""
        return min(self.boot - boottime(), self.wall - wall())


@dataclass(slots=True, kw_only=True)
class Job:
    """One attempt: its order, the step that runs, and how far its end has come."""

    order: dict[str, Any]
    lease: Lease
    intake: Intake = field(init=False)
    step: int = 0
    main_pid: int = 0
    started_ns: int = 0
    # CLOCK_BOOTTIME of the start.
    begun: float = 0.0
    told_started: bool = False
    tell_at: float = 0.0
    # Wait status of the main process of the step, once it is there.
    status: int | None = None
    finished_ns: int = 0
    # Why the job is being ended: empty while nobody has asked.
    cause: str = ""
    reason: str = ""
    # CLOCK_BOOTTIME at which SIGKILL goes out (again); infinite while nothing is being killed.
    kill_at: float = float("inf")
    attempt_end: float = float("inf")
    step_end: float = float("inf")
    pipes: dict[int, Stream] = field(default_factory=dict)

    def __post_init__(self) -> None:
        env, payload = self.order.get("env", {}), self.order.get("payload", "")
        rules = self.order.get("logs", {})
        self.intake = Intake(rules, env=env, payload_json=payload, now=boottime, now_ns=wall_ns)

    @property
    def token(self) -> int:
        """Fencing token of the attempt."""
        return int(self.order["token"])

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return float(self.order["grace"])

    @property
    def timeout_at(self) -> float:
        """CLOCK_BOOTTIME at which the attempt or its step has taken too long."""
        return min(self.attempt_end, self.step_end)

    def lease_left(self) -> float:
        """Seconds until SIGTERM must go out for the lease's sake."""
        return self.lease.left() - float(self.order["lease_grace"]) - KILL_ALLOWANCE

    def arm_step(self, now: float) -> None:
        """Start the clock of the current step."""
        seconds = float(self.order["steps"][self.step].get("timeout") or 0)
        self.step_end = now + seconds if seconds else float("inf")
