"""The lease in time: heartbeats that ask for grants and apply the answers, and the watchdog of the deadline."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.app.attempt_manager import AttemptManager
from toban_executor.app.lease import instant
from toban_executor.app.lease_answers import LeaseAnswers
from toban_executor.ports.coordinator import Gateway, HeartbeatAnswer, HeartbeatRequest, RelayedOrder, Vitals
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.settings_watch import SettingsWatch

# How often the deadline is looked at while attempts are live or the lease is about to end, and without either.
WATCHDOG_SECONDS = 0.1
IDLE_SECONDS = 1.0
# How long after the deadline guards are left alone: they act at the deadline itself.
ENFORCE_SECONDS = 0.1
# How long after the deadline a job may still be found frozen, by its guard or from here.
FREEZE_SECONDS = 1.0
# A lease has room for so many heartbeats, even if the setting is longer: it may be meant for longer leases.
HEARTBEATS_PER_LEASE = 3
# The last heartbeat waits so long for relayed orders under way.
STOP_SECONDS = 1.0
# Ended attempts that one heartbeat names; each takes about 20 bytes, a quarantined one up to a few hundred.
MOST_NAMES = 5000

_log = get_logger(__name__)
_heartbeats = metrics.counter(
    "toban_executor_heartbeats_total", "Heartbeats by result: granted, refused, error.", ("result",)
)
_unleased = metrics.gauge(
    "toban_executor_unleased_jobs",
    "Attempts that run on without a lease (on_lease_loss: continue); their runs may be executed elsewhere at the same time.",
)
_left = metrics.gauge(
    "toban_executor_lease_left_seconds", "Time until the lease expires; negative after it has expired."
)


def heartbeat_seconds(wanted: float, *, lease_ms: int, margin_ms: int) -> float:
    """The time between two heartbeats: as `wanted`, and never too long for the lease that this incarnation registered with."""
    return min(wanted, (lease_ms - margin_ms) / 1000 / HEARTBEATS_PER_LEASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What heartbeats report about the machine: labels, load average of the last minute, vitals (None = unreadable), and log chunks
    in quarantine."""

    labels: Mapping[str, str] = field(default_factory=dict)
    load: Callable[[], float] = lambda: 0.0
    vitals: Callable[[], Vitals | None] = lambda: None
    quarantined_chunks: Callable[[], int] = lambda: 0


class Heartbeat:
    """Sends heartbeats. `on_archivers` gets the addresses of log-archivers that an answer names."""

    def __init__(
        self,
        *,
        gateway: Gateway,
        attempts: AttemptManager,
        settings: SettingsWatch,
        machine: Machine,
        on_archivers: Callable[[Sequence[str]], None],
        clock: Clock,
    ) -> None:
        # A coordinator has answered a heartbeat with `draining` set.
        self.drain_acknowledged = False
        self._gateway = gateway
        self._attempts = attempts
        self._settings = settings
        self._machine = machine
        self._on_archivers = on_archivers
        self._clock = clock
        self._answers = LeaseAnswers(attempts=attempts)
        self._order_results: list[tuple[int, str]] = []
        # Relayed orders that are not carried out yet, oldest first, by their id, and the task that does it.
        self._relayed: dict[int, RelayedOrder] = {}
        self._carrying: asyncio.Task[None] | None = None

    def interval_seconds(self) -> float:
        """The time between two heartbeats of the registered incarnation."""
        registered = self._attempts.lease.registered
        assert registered is not None
        wanted = registered.heartbeat_seconds
        if self._settings.received:
            wanted = self._settings.known["heartbeat_interval_seconds"]
        return heartbeat_seconds(wanted, lease_ms=registered.lease_ms, margin_ms=registered.margin_ms)

    async def run_once(self) -> bool:
        """One heartbeat, and a second at once when the first only returned the number to echo. True when granted.

        Raises TobanError when no coordinator answers.
        """
        granted = await self._send()
        if not granted and self._answers.may_be_granted:
            granted = await self._send()
        return granted

    async def _send(self) -> bool:
        request = self._request()
        sent = instant(self._clock)
        try:
            answer = await self._gateway.heartbeat(request)
        except TobanError as error:
            _heartbeats.labels("error").inc()
            if error.code in (ErrorCode.INCARNATION_UNKNOWN, ErrorCode.WRONG_INCARNATION):
                self._attempts.lease.end(f"coordinator does not know this incarnation: {error.message}")
                return False
            raise
        del self._order_results[: len(request.outcomes)]
        self.drain_acknowledged = request.draining
        self._attempts.progress.acknowledge(request.progress)
        self._attempts.progress.acknowledge_steps(request.steps)
        _heartbeats.labels("granted" if answer.granted else "refused").inc()
        lease = self._attempts.lease
        lease.echo = max(lease.echo, answer.grant_seq)
        self._attempts.lease_end.acknowledge(request.freezes)
        # Before any frozen job goes on: what the cluster does not hold here must not.
        self._answers.apply_state(answer.state, answer.detach_mode)
        self._answers.end_not_held(answer.not_held)
        self._note_nonce(request, answer)
        if answer.granted:
            self._attempts.granted(sent, [key for key, note in request.freezes.items() if note.frozen])
        await self._apply(answer)
        return answer.granted

    async def send_stopped(self) -> None:
        """The last heartbeat, once the guards have ended and every outcome is committed: nothing runs here and nothing will.

        It closes the executor's row at once instead of after its lease, and carries the results of relayed orders, so that
        refused runs are not taken for lost. Raises TobanError when no coordinator answers.
        """
        await self.orders_carried_out(STOP_SECONDS)
        await self._gateway.heartbeat(replace(self._request(), stopped=True))

    def _request(self) -> HeartbeatRequest:
        book = self._attempts.book
        held = book.live
        unanswered, quarantined = self._attempts.unanswered, self._attempts.quarantined
        # An executor that was cut off for long may have more than fits into a heartbeat: it names nothing then.
        names_all = len(unanswered) + len(quarantined) <= MOST_NAMES
        return HeartbeatRequest(
            echo=self._attempts.lease.echo,
            nonce=self._attempts.lease.nonces.nonce,
            epoch_max=book.epoch_max,
            signed_epoch=self._attempts.epochs.signed,
            free_slots=book.free_slots,
            held=held,
            progress=self._attempts.progress.unacknowledged(key for key, _state in held),
            steps=self._attempts.progress.unacknowledged_steps(key for key, _state in held),
            freezes=self._attempts.lease_end.unacknowledged((key for key, _state in held), self._clock.boottime()),
            outcomes=list(self._order_results),
            draining=book.retiring,
            settings_version=self._settings.known.version,
            load=self._machine.load(),
            labels=self._machine.labels,
            vitals=self._machine.vitals(),
            names_all=names_all,
            unanswered=unanswered if names_all else (),
            quarantined=quarantined if names_all else {},
            quarantined_outcomes=len(quarantined),
            quarantined_chunks=self._machine.quarantined_chunks(),
            unreachable=book.out_of_reach,
        )

    def _note_nonce(self, request: HeartbeatRequest, answer: HeartbeatAnswer) -> None:
        lease = self._attempts.lease
        if answer.superseded and not lease.superseded:
            _log.error(
                "heartbeat refused: another copy of this executor has its lease; jobs here end at the deadline",
                nonce=str(request.nonce),
            )
        self._attempts.set_superseded(answer.superseded)
        if answer.granted:
            lease.nonces.granted(answer.nonce, presented=request.nonce)
        elif answer.superseded:
            lease.nonces.refused(request.nonce)

    async def _apply(self, answer: HeartbeatAnswer) -> None:
        attempts = self._attempts
        attempts.epochs.note_signed(answer.signed_epoch)
        attempts.epochs.note(answer.epoch)
        attempts.forget_below(answer.smallest_live)
        self._settings.note_version(answer.settings_version)
        if answer.log_archivers:
            self._on_archivers(answer.log_archivers)
        for order in answer.orders:
            self._relayed.setdefault(order.order_id, order)
        if self._relayed and (self._carrying is None or self._carrying.done()):
            # Not awaited: they wait for the journal, and a disk that hangs must cost no lease.
            self._carrying = asyncio.create_task(self._carry_out_all(), name="relayed orders")

    async def orders_carried_out(self, at_most_seconds: float) -> None:
        """Wait for the relayed orders received so far, whose results the next heartbeat takes along."""
        if self._carrying is not None:
            await asyncio.wait({self._carrying}, timeout=at_most_seconds)

    async def _carry_out_all(self) -> None:
        while self._relayed:
            order_id, order = next(iter(self._relayed.items()))
            try:
                self._order_results.append((order_id, await self._carry_out(order)))
            except TobanError as error:
                _log.warning("relayed order failed; a coordinator repeats it", order_id=order_id, error=error.message)
            except Exception:
                _log.exception("relayed order failed; a coordinator repeats it", order_id=order_id)
            finally:
                del self._relayed[order_id]

    async def _carry_out(self, order: RelayedOrder) -> str:
        """Carry out an order that the leader could not deliver; the result goes with the next heartbeat."""
        attempts = self._attempts
        if order.cancel is not None:
            return ",".join(await attempts.cancel(order.header, order.cancel, relayed=True))
        return ",".join(await attempts.revoke(order.header, order.revoke or (), relayed=True))


class LeaseWatchdog:
    """The second enforcer of the lease's deadline, behind the guards.

    The incarnation goes on while it has frozen jobs, whose next grant lets them run again, or jobs that continue; without any, a lost
    lease ends it.
    """

    def __init__(self, *, attempts: AttemptManager, clock: Clock) -> None:
        self._attempts = attempts
        self._clock = clock
        self._lost = False
        self._lost_at = 0.0

    def wait_seconds(self) -> float:
        """The time until the next look. A step of the wall clock can end the lease at any moment, which concerns live attempts only: the first
        one wakes the loop."""
        attempts, lease = self._attempts, self._attempts.lease
        quiet = attempts.idle.is_set() and (lease.deadline is None or lease.left > IDLE_SECONDS)
        return IDLE_SECONDS if quiet else WATCHDOG_SECONDS

    async def run_once(self) -> None:
        """Compare the deadline with the clocks. At the deadline the guards have frozen or killed everything; the rest is done from here."""
        lease = self._attempts.lease
        if lease.deadline is None:
            return
        left = lease.left
        _left.set(left)
        live = self._attempts.lease_end
        _unleased.set(0 if left > 0 else len(live.continuing))
        if left > 0:
            if self._lost and not lease.over:
                _log.info("lease renewed", frozen_jobs_to_resume=len(live.frozen), state=lease.row_state)
                self._lost = False
            return
        doubtful = lease.is_doubtful
        if not self._lost:
            self._lost_at = self._clock.boottime()
            _log.error(
                "lease lost",
                jobs_to_freeze=len(live.to_freeze),
                jobs_to_kill=len(live.to_kill),
                jobs_that_continue=len(live.continuing),
                state=lease.row_state,
                wall_clock_stepped=doubtful,
            )
        self._lost = True
        # After a step of the wall clock its reading says nothing about how long guards have had; the next heartbeat asks for a grant.
        late = self._clock.boottime() - self._lost_at if doubtful else -left
        if lease.superseded:
            # What is frozen here goes on elsewhere.
            lease.end("another copy of this executor has the lease")
        elif not (doubtful or live.frozen or (live.to_freeze and late < FREEZE_SECONDS) or live.continuing):
            lease.end("the lease ran out")
        if not self._attempts.idle.is_set() and late >= ENFORCE_SECONDS:
            self._attempts.enforce_lease(late, doubtful=doubtful)
