"""Executors that are not set up for a step of a run: each is left out for that run for a while, so that the two do not repeat each other."""

from __future__ import annotations

from collections.abc import Mapping

from toban_coordinator.ports.orders import Target
from toban_domain.outcome import AttemptKey
from toban_observability import metrics
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

# The refusal of an executor whose slots are all in use; one of release 0.1 answers so to an order that may wait.
FULL = "NO_SLOT"
# For how long such an executor gets no orders beyond its slots, seconds.
FULL_SECONDS = 10.0
# The refusal of an executor whose labels promise what it cannot do.
NOT_HERE = "STEP_NOT_HERE"
# For how long a run is not sent to an executor that has refused it so, seconds.
LEFT_OUT_SECONDS = 15.0
_log = get_logger(__name__)

# An executor that refused a step in this time keeps refusing, seconds.
RECENT_SECONDS = 300.0

misplaced = metrics.leader_gauge(
    "toban_executors_misplaced",
    "Executors that in the last 5 minutes refused a run because they are not set up for a step that their labels promise.",
)


class PlacementRefusals:
    """Those of one term, by the monotonic clock: a new leader tries each pair once."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[tuple[int, str], float] = {}
        self._refused_at: dict[str, float] = {}
        self._full_until: dict[str, float] = {}
        self._throttle = LogThrottle()

    def note(self, key: AttemptKey, target: Target, refusal: str, message: str) -> None:
        """An executor has refused a start; only NOT_HERE leaves it out."""
        now = self._clock.monotonic()
        if refusal == FULL:
            self._full_until[target.incarnation] = now + FULL_SECONDS
        if refusal != NOT_HERE:
            return
        self._until[key.run_id, target.incarnation] = now + LEFT_OUT_SECONDS
        self._refused_at[target.incarnation] = now
        self._count(now)
        if (suppressed := self._throttle.admit(target.incarnation, now)) is not None:
            _log.warning(
                "an executor is not set up for a step that its labels promise; it is left out for this run",
                worker_id=target.worker_id,
                run_id=key.run_id,
                error=message,
                left_out_seconds=LEFT_OUT_SECONDS,
                suppressed=suppressed,
                remedy="correct SCHEDULER_LABELS of the executor, or set it up for the step",
            )

    def left_out(self) -> Mapping[int, frozenset[str]]:
        """The incarnations that are left out now, by run."""
        now = self._clock.monotonic()
        self._count(now)
        self._until = {pair: until for pair, until in self._until.items() if until > now}
        found: dict[int, frozenset[str]] = {}
        for run_id, incarnation in self._until:
            found[run_id] = found.get(run_id, frozenset()) | {incarnation}
        return found

    def full(self) -> frozenset[str]:
        """Incarnations that have refused a start in the last FULL_SECONDS since all their slots were in use."""
        now = self._clock.monotonic()
        self._full_until = {one: until for one, until in self._full_until.items() if until > now}
        return frozenset(self._full_until)

    def _count(self, now: float) -> None:
        self._refused_at = {one: at for one, at in self._refused_at.items() if now - at < RECENT_SECONDS}
        misplaced.set(len(self._refused_at))
