"""Input of placement: due runs, and the executors that may run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from toban_domain.executor_group import DEFAULT_GROUP
from toban_domain.job import ANY_ISOLATION, SHARED, SelectorSpec
from toban_domain.lease import ExecutorState
from toban_domain.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """A due run: PENDING, or assigned in advance to incarnation `placed_on` and not dispatched.

    `overlaps`: an earlier run of the same schedule is still live. `started`: an earlier attempt of it has run. `deferred_on`: the limit that
    it has waited for. `group`: of the concurrency policy; `claimed`: no other run can be live in it. `catch_up`: its slot was missed.
    `keeps_limits`: it goes on after a dispatch, and holds its limits already.
    """

    id: int
    definition_id: int
    definition_version: int
    job_name: str
    state: RunState
    origin: str
    slot: datetime | None
    scheduled_for: datetime
    attempt: int
    lost_count: int = 0
    payload: str
    checkpoint: str | None = None
    first_step: int | None = None
    timeout_seconds: int
    placed_on: str | None = None
    started: bool = False
    overlaps: bool = False
    priority: int = 0
    scope: str = "system"
    scope_id: str = ""
    group: str | None = None
    claimed: bool = False
    deferred_on: str | None = None
    catch_up: bool = False
    not_before: datetime | None = None
    keeps_limits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLoad:
    """An incarnation that is not off. `held`: number of runs dispatched to it; `worker_id` grows with each registration; `job_labels` are what
    its group asks of jobs. `isolation` is its class, which no label can state. `queue`: orders that it takes beyond its slots, of runs that may wait.
    """

    incarnation: str
    worker_id: int
    instance: str
    address: str
    state: ExecutorState
    slots: int
    held: int
    load: float
    labels: Mapping[str, str]
    last_heartbeat_at: datetime
    drained: bool = False
    smallest_token: int | None = None
    group: str = DEFAULT_GROUP
    job_labels: Mapping[str, str] = field(default_factory=dict)
    isolation: str = SHARED
    queue: int = 0

    def room(self, *, may_wait: bool) -> int:
        """How many more runs it can take now."""
        return max(0, self.slots + (self.queue if may_wait else 0) - self.held)

    def takes(self, selector: SelectorSpec) -> bool:
        """Whether it may run the job with this selector."""
        return (
            selector.fits(self.labels)
            and self.job_labels.items() <= selector.job_labels.items()
            and selector.isolation in (ANY_ISOLATION, self.isolation)
        )
