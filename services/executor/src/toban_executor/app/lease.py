"""The executor's lease from registration to the end of the incarnation, as this process sees it."""

import asyncio
from collections.abc import Callable

from toban_executor.decide.continuation import Plan, plan
from toban_executor.ports.coordinator import Registered
from toban_fencing.executor_lease import HoldSide, Instant, NonceHold
from toban_runtime.clock import Clock


def instant(clock: Clock) -> Instant:
    """Now, on both clocks of a lease."""
    return Instant(clock.boottime(), clock.wall().timestamp())


class ExecutorLease:
    """`registered` is None before a coordinator has accepted the incarnation; nothing may start before the first grant.

    `over` is empty while the incarnation continues, else the reason for its end, and `ended` is set. `row_state` is the state of its row in
    PostgreSQL (on, draining, detached, cut, off); `detach_mode` is set when an operator has detached it (let_finish, stop).
    `echo` is the highest grant_seq that any answer had. `tries` gives how often and with what pause in seconds to ask about continuation.
    `superseded`: another copy of this incarnation, of a cloned or restored machine, has the lease.
    """

    def __init__(self, *, clock: Clock, tries: Callable[[], tuple[int, float]]) -> None:
        self.registered: Registered | None = None
        self.over = ""
        self.ended = asyncio.Event()
        self.row_state = "on"
        self.detach_mode = ""
        self.echo = 0
        self._tries = tries
        self.superseded = False
        self.nonces = NonceHold()
        self._hold: HoldSide | None = None
        self._clock = clock

    def begin(self, registered: Registered) -> None:
        """The incarnation is registered: grants count from now on."""
        self.registered = registered
        self._hold = HoldSide(lease_ms=registered.lease_ms, margin_ms=registered.margin_ms)

    def end(self, reason: str) -> None:
        """The incarnation can never run jobs again; the first reason stays."""
        self.over = self.over or reason
        self.ended.set()

    def granted(self, sent: Instant) -> Instant:
        """A heartbeat sent at `sent` was granted; returns the deadline."""
        assert self._hold is not None
        return self._hold.granted(sent)

    @property
    def deadline(self) -> Instant | None:
        """Until when jobs may run; None before the first grant."""
        return None if self._hold is None else self._hold.deadline

    @property
    def left(self) -> float:
        """Seconds until the deadline; 0 before the first grant, negative when it has passed."""
        return 0.0 if self._hold is None else self._hold.left(instant(self._clock))

    @property
    def is_doubtful(self) -> bool:
        """True when only the wall clock says that the lease has ended: CLOCK_BOOTTIME leaves time to ask for a grant."""
        deadline = self.deadline
        return deadline is not None and instant(self._clock).passed_by_wall_alone(deadline)

    @property
    def valid(self) -> bool:
        """True while jobs may start."""
        return self._hold is not None and self._hold.valid(instant(self._clock))

    def grace(self, seconds: float) -> float:
        """Seconds between SIGTERM and SIGKILL when the lease ends: the job's `seconds` for that, at most half of the lease without the time in
        which this process asks whether the job may continue."""
        assert self._hold is not None
        return self._hold.grace(seconds, reserved=self.plan.window)

    @property
    def plan(self) -> Plan:
        """How to ask about continuation, within the lease of this incarnation."""
        assert self._hold is not None
        tries, interval = self._tries()
        return plan(hold=self._hold.seconds, tries=tries, interval=interval)
