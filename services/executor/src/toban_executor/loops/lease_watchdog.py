"""The executor's own lease timer: the second line behind the guards, and the judge of when this incarnation is over."""

from toban_executor.loops.attempt_manager import Attempts, instant
from toban_executor.loops.heartbeat import Heartbeat
from toban_executor.ports import Guards
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

TICK_SECONDS = 0.1

_log = get_logger(__name__)
_left = metrics.gauge(
    "toban_executor_lease_left_seconds", "Time until the lease expires; negative after it has expired."
)


class LeaseWatch:
    """`over` is empty while the incarnation goes on, else why it has ended."""

    def __init__(self, *, attempts: Attempts, guards: Guards, heartbeat: Heartbeat, clock: Clock) -> None:
        self._attempts = attempts
        self._guards = guards
        self._heartbeat = heartbeat
        self._clock = clock
        self._lost = False

    @property
    def over(self) -> str:
        """Why this incarnation has ended, if it has."""
        if self._heartbeat.over:
            return self._heartbeat.over
        if self._attempts.broken.is_set():
            return "the guards have ended"
        return "the lease ran out" if self._lost else ""

    async def run_once(self) -> str:
        """Look at the clocks. At the deadline the guards have killed everything; what still lives is killed from here."""
        lease = self._attempts.lease
        if lease is None or lease.deadline is None:
            return self.over
        left = lease.left(instant(self._clock))
        _left.set(left)
        if left <= 0:
            if not self._lost:
                _log.error("lease lost", live=len(self._attempts.book.live), state=self._heartbeat.state)
            self._lost = True
            if not self._attempts.idle.is_set():
                self._guards.kill_directly()
        return self.over
