"""Executor leases: every coordinator observes all the time, the leader detaches and fences (docs/fencing.md 3.8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.decide.executors.lease import (
    ExecutorRow,
    FencePlan,
    LeasePlan,
    Silence,
    Watched,
    plan,
    told_since,
    watch,
)
from toban_coordinator.ports.orders import ExecutorProbe
from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.store.executors import executor_fencing, executors
from toban_domain.epoch import Term
from toban_domain.errors import FencedOut
from toban_domain.lease import ExecutorState
from toban_domain.settings import SETTINGS
from toban_fencing.redis_client import RedisGone
from toban_fencing.worker_registry import Members
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.errors import TooLong
from toban_store.pool import Pool
from toban_store.tx import autocommit, fenced_tx

LEASE_TICK_SECONDS = 0.5
ORDERS_TICK_SECONDS = 5.0
# How often the keys by which an operator detaches are looked at.
KEYS_SECONDS = 1.0
DETACH_MODES = frozenset({"stop", "let_finish"})

_log = get_logger(__name__)
_fences = metrics.counter(
    "toban_fences_total",
    "Closed executor incarnations by kind: stopped (orderly shutdown), attested (confirmed dead) or lease (lease expired).",
    ("kind",),
)
for _kind in ("stopped", "attested", "lease"):
    _fences.labels(_kind)
_states = metrics.leader_gauge("toban_executors", "Executor incarnations that are not off, by state.", ("state",))
_age = metrics.leader_gauge(
    "toban_lease_age_seconds", "Longest time since the last lease renewal of any live executor incarnation."
)


class Observer:
    """The memory of one coordinator about all incarnations. `run_once` is the body of a loop that runs in every coordinator."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self.rows: dict[str, executors.Observed] = {}
        self.watched: dict[str, Watched] = {}
        # BOOTTIME at which the last read returned.
        self._read_at: float | None = None

    async def run_once(self) -> None:
        """Read every row that is not off; a wait begins when the read that first shows a value has returned."""
        rows = await executors.observe(self._pool)
        at = self._clock.boottime()
        self.rows = {row.incarnation: row for row in rows}
        found = [_watched_row(row) for row in rows]
        self.watched = watch(self.watched, found, read_returned_at=at, last_read_at=self._read_at)
        self._read_at = at


def _watched_row(row: executors.Observed) -> ExecutorRow:
    return ExecutorRow(
        cluster=row.cluster,
        incarnation=row.incarnation,
        state=row.state,
        grant_seq=row.grant_seq,
        lease_ms=row.lease_ms,
        last_heartbeat=row.last_heartbeat,
        attested_reason=row.attested_reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDeps:
    """What the leader's half needs. `holds()`: whether the term may still be acted on."""

    pool: Pool
    clock: Clock
    observer: Observer
    probe: ExecutorProbe
    members: Members
    settings: SettingsSource
    holds: Callable[[], bool]


def least_lease_ms(settings: SettingsSource) -> int:
    """What bounds an executor's lease while no executor has a row, milliseconds."""
    name = "executor_lease_seconds"
    return int(1000 * max(SETTINGS[name].default, settings.known[name]))


class LeaseKeeper:
    """The leader's half, for one term. `run_once` is the body of its loop `lease`."""

    def __init__(self, *, deps: LeaseDeps, term: Term) -> None:
        self._deps = deps
        self._term = term
        self._unanswered: Counter[str] = Counter()
        # Runs that a fence moves with its executor; at 0 it moves the executor alone.
        self._runs = AdaptiveBatch(executor_fencing.RUN_LIMIT, least=0)
        self._pings: dict[str, asyncio.Task[None]] = {}
        self._keys_at = 0.0
        # The rows of this turn: the observer reads on its own as well.
        self._rows: dict[str, executors.Observed] = {}

    async def run_once(self) -> int:
        """Fence and detach what is due; the number of incarnations fenced. Raises FencedOut as soon as the term does not hold."""
        deps = self._deps
        self._require_term()
        await deps.observer.run_once()
        self._rows = deps.observer.rows
        self._forget()
        now = deps.clock.boottime()
        self._count(now)
        todo = plan(deps.observer.watched, unanswered=self._unanswered, now=now, silence=self._silence())
        fenced = await self._fence(todo.fence)
        await self._detach(todo)
        for incarnation in todo.ping:
            self._ping(incarnation)
        return fenced

    def _count(self, now: float) -> None:
        counts = Counter(row.state for row in self._rows.values())
        _states.set_all({(state.value,): counts[state] for state in ExecutorState if state is not ExecutorState.OFF})
        watched = self._deps.observer.watched.values()
        _age.set(max((now - item.sighting.since for item in watched), default=0.0))

    def _require_term(self) -> None:
        """Before each write: reads and other writes may have waited since the turn began."""
        if not self._deps.holds():
            raise FencedOut(self._term.epoch)

    def _silence(self) -> Silence:
        return Silence.of(self._deps.settings.known)

    async def _fence(self, due: Sequence[FencePlan]) -> int:
        """One executor a transaction; runs beyond what fits are taken by reap, since their executor is off."""
        done = 0
        for item in due:
            limit = self._runs.size
            wanted = executor_fencing.Fence(incarnation=item.incarnation, grant_seq=item.grant_seq, reason=item.reason)
            self._require_term()
            try:
                async with fenced_tx(self._deps.pool, self._term) as t:
                    result = await executor_fencing.fence(t, [wanted], run_limit=limit)
            except TooLong as error:
                self._runs.too_long(limit)
                worker_id = self._rows[item.incarnation].worker_id
                _log.warning(
                    "fencing an executor took too long; next try with fewer runs",
                    worker_id=worker_id,
                    runs=limit,
                    error=error.message,
                )
                continue
            self._runs.fitted(result.runs)
            if result.incarnations:
                done += 1
                self._log_fence(item, result.runs)
        return done

    def _log_fence(self, item: FencePlan, runs: int) -> None:
        row = self._rows[item.incarnation]
        kind = "stopped" if row.attested_reason == executors.STOPPED else "attested" if row.attested_reason else "lease"
        _fences.labels(kind).inc()
        told = {"worker_id": row.worker_id, "reason": item.reason, "runs": runs, "epoch": self._term.epoch}
        if kind == "stopped" and not runs:
            _log.info("an executor has stopped", **told)
        else:
            _log.warning("an executor is fenced", **told)

    async def _detach(self, todo: LeasePlan) -> None:
        asked = await self._asked_by_key()
        if not (todo.detach or todo.rejoin or asked):
            return
        self._require_term()
        async with fenced_tx(self._deps.pool, self._term) as t:
            silent = await executors.detach(t, todo.detach, mode="") if todo.detach else []
            back = await executors.rejoin(t, todo.rejoin) if todo.rejoin else []
            for incarnation, mode in asked.items():
                await executors.detach(t, [incarnation], mode=mode, reason=f"scheduler:detach key, {mode}")
        if silent:
            _log.warning("executors are silent: no new work for them", worker_ids=silent)
        if back:
            _log.info("executors send heartbeats again", worker_ids=back)
        await self._clear_keys(asked)

    async def _asked_by_key(self) -> dict[str, str]:
        """Incarnation → mode of executors whose detach key an operator has set in Redis; looked at every KEYS_SECONDS."""
        now = self._deps.clock.monotonic()
        if now < self._keys_at:
            return {}
        self._keys_at = now + KEYS_SECONDS
        working = (ExecutorState.ON, ExecutorState.DRAINING)
        by_worker = {row.worker_id: row.incarnation for row in self._rows.values() if row.state in working}
        try:
            flags = await self._deps.members.detach_flags(list(by_worker))
        except RedisGone:
            return {}
        return {by_worker[worker]: mode if mode in DETACH_MODES else "let_finish" for worker, mode in flags.items()}

    async def _clear_keys(self, asked: dict[str, str]) -> None:
        for incarnation in asked:
            try:
                await self._deps.members.clear_detach(self._rows[incarnation].worker_id)
            except RedisGone:
                # The key is looked at again next time, when its executor is detached already.
                return

    def _ping(self, incarnation: str) -> None:
        if incarnation in self._pings:
            return
        row = self._rows[incarnation]
        task = asyncio.create_task(self._ask(incarnation, f"{row.grpc_host}:{row.grpc_port}"))
        self._pings[incarnation] = task
        task.add_done_callback(lambda _: self._pings.pop(incarnation, None))

    async def _ask(self, incarnation: str, address: str) -> None:
        answered = await self._deps.probe.ping(incarnation, address) == incarnation
        self._unanswered[incarnation] = 0 if answered else self._unanswered[incarnation] + 1

    def _forget(self) -> None:
        """A heartbeat ends the count of unanswered pings; an incarnation that is off is not counted any more."""
        now, silence = self._deps.clock.boottime(), self._silence()
        for incarnation in tuple(self._unanswered):
            item = self._deps.observer.watched.get(incarnation)
            if item is None or now - item.silent_since < silence.seconds:
                del self._unanswered[incarnation]


class OverdueOrders:
    """The leader's loop `orders`, for one term: an executor that leaves an order open for too long gets no more grants (docs/fencing.md 3.8)."""

    def __init__(self, *, deps: LeaseDeps, term: Term) -> None:
        self._deps = deps
        self._term = term
        # Orders that their executors have been told, since when; and when this was looked at last (BOOTTIME).
        self._since: dict[int, float] = {}
        self._looked_at: float | None = None

    async def run_once(self) -> int:
        """Cut executors that have left an order unanswered for reassign_after_seconds since they were told; how many.

        Raises FencedOut when the term does not hold any more.
        """
        deps = self._deps
        seconds = deps.settings.known["reassign_after_seconds"]
        # Not under the fence, which holds up a take-over: the cut looks again whether the order is open.
        async with autocommit(deps.pool) as reading:
            told, now = await executors.told_orders(reading), deps.clock.boottime()
        self._since = told_since(self._since, told, now=now, last_look=self._looked_at)
        self._looked_at = now
        late = [order for order, since in self._since.items() if now - since >= seconds]
        if not deps.holds():
            raise FencedOut(self._term.epoch)
        if not late:
            return 0
        async with fenced_tx(deps.pool, self._term) as t:
            cut = await executors.cut_silent(t, late)
        if cut:
            _log.warning("executors left orders unanswered: no more grants for them", worker_ids=cut)
        return len(cut)
