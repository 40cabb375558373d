"""What a turn of loop `assign` reads: who is free, and what is due."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.limits.limit_gate import LimitGate
from toban_coordinator.app.placement.order_sender import OrderSender
from toban_coordinator.app.placement.placement_refusals import PlacementRefusals
from toban_coordinator.app.placement.set_aside import SetAside
from toban_coordinator.decide.placement import assign as decide
from toban_coordinator.decide.placement.fair import RoundRobin
from toban_coordinator.decide.placement.prefetch import PassedOver, Prefetch
from toban_coordinator.decide.placement.search_pace import SearchPace
from toban_coordinator.loops.term_loop import LoopDeps
from toban_coordinator.store.placement import runs_assign
from toban_domain.job import JobSpec
from toban_domain.placement import DueRun, ExecutorLoad
from toban_store.tx import autocommit

# Due runs that are looked at beyond the free slots where the turn before has skipped or deferred some; else one, which shows that more wait.
SPARE = 16
# While runs wait for a slot, those that need none are looked for this often, seconds.
OFFERS_SECONDS = 0.2

Specs = dict[tuple[int, int], JobSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRead:
    """Executors that take work and runs that are due, in the order in which they start, with their definitions."""

    usable: Sequence[ExecutorLoad]
    due: Sequence[DueRun]
    specs: Specs
    # False while the due runs have several ranks or scopes.
    one_scope: bool
    # When runs that need no slot are read next, by the monotonic clock; None when this read has them.
    offers_at: float | None = None


class DueReads:
    """The reads of one term, and the state that each leaves for the next one."""

    def __init__(
        self,
        *,
        deps: LoopDeps,
        definitions: DefinitionCache,
        sender: OrderSender,
        limits: LimitGate,
        refusals: PlacementRefusals,
        turns: RoundRobin,
        aside: SetAside,
    ) -> None:
        """`turns` says whose turn it is among tenants, `aside` which runs are left out."""
        self._deps = deps
        self._definitions = definitions
        self._sender = sender
        self._limits, self._refusals = limits, refusals
        self.prefetch = Prefetch()
        self._turns, self._aside = turns, aside
        # Whether the due runs of the last read had one rank and scope: then the short read is tried first.
        self._one_scope = True
        # (definition, version) that no executor with a free slot fits: left out of the reads, so that they hold up no others.
        self._blocked: set[tuple[int, int]] = set()
        # Those of them with runs that wait for a slot and may not wait at an executor.
        self._need_slots: set[tuple[int, int]] = set()
        self._passed_over: PassedOver[tuple[int, int]] = PassedOver()
        self._pace = 0.0
        # When runs that need no slot are read apart again.
        self._offers_at = 0.0
        self._spare = SPARE
        # Executors that took work when they were last read.
        self._usable: Sequence[ExecutorLoad] = ()
        self._known = runs_assign.KnownLoads()
        # Of reads of all due runs. Where the last one found the first run, None when there are several ranks or scopes; whether the read of this
        # turn went on from there.
        self._whole = SearchPace()
        self._found: runs_assign.Found | None = None
        self._went_on = False

    @property
    def has_blocked(self) -> bool:
        """Whether the last plan left runs for which no slot was free."""
        return bool(self._blocked)

    @property
    def pace_seconds(self) -> float:
        """How far apart turns are: 0 while no run waits for a slot."""
        return self._pace if self._blocked else 0.0

    @property
    def whole_in(self) -> float | None:
        """In how many seconds the next read looks at all due runs; None when the last one did."""
        return self._whole.waits(self._deps.server_time.now().timestamp()) if self._went_on else None

    def runs_wait(self, usable: Sequence[ExecutorLoad]) -> bool:
        """True when a run waits for a slot; one that fits no executor, or whose definition cannot be read, holds up no other."""
        waiting = [spec for key in self._blocked if (spec := self._definitions.known(key)) is not None]
        return any(e.takes(spec.selector) for spec in waiting for e in usable)

    async def read(self, now: datetime, most: int) -> DueRead:
        """Who is free and what is due, `most` runs about: side by side while no run waits for a slot, else no more than there are slots for."""
        self._went_on = False
        if not self._blocked:
            usable, (due, specs) = await asyncio.gather(self._read_usable(now), self._due(now, most, whole=False))
            return DueRead(usable=usable, due=due, specs=specs, one_scope=self._one_scope)
        if not self._any_room_will_do():
            usable, due, specs = await self._one_by_one(now, most)
        elif self._goes_on_from(now) is not None:
            usable, due, specs = await self._one_by_one(now, most, whole=False)
        else:
            usable, due, specs = await self._both(now, most)
        read = DueRead(usable=usable, due=due, specs=specs, one_scope=self._one_scope, offers_at=self._offers_at)
        at = self._deps.clock.monotonic()
        if at < self._offers_at:
            return read
        self._offers_at = at + OFFERS_SECONDS
        offers, of_offers = await self._due_offers(now, most, {run.id for run in due})
        return replace(read, due=[*due, *offers], specs={**specs, **of_offers}, offers_at=None)

    def planned(self, plan: decide.AssignPlan) -> None:
        """Notes what was made of a read."""
        self._blocked |= plan.unplaced
        self._need_slots |= plan.need_slots
        passed_over = plan.skips or plan.defers or plan.offers or (plan.unplaced and plan.board.has_room())
        self._spare = SPARE if passed_over else 1

    def _any_room_will_do(self) -> bool:
        """Whether each definition that waits fits each executor that took work, as without labels, and may wait there where runs may: then no read
        has to leave one out."""
        if not self._one_scope or not self._usable:
            return False
        waiting = [None if self._definitions.broken(key) else self._definitions.known(key) for key in self._blocked]
        queues = any(e.queue for e in self._usable)
        return not (queues and self._need_slots) and all(
            spec is not None and all(e.takes(spec.selector) for e in self._usable) for spec in waiting
        )

    def _goes_on_from(self, now: datetime) -> runs_assign.Found | None:
        """Where a read may go on while the next one of all due runs has to wait."""
        return self._found if self._whole.waits(now.timestamp()) else None

    async def _one_by_one(
        self, now: datetime, most: int, *, whole: bool = True
    ) -> tuple[list[ExecutorLoad], list[DueRun], Specs]:
        usable = await self._read_usable(now)
        self._unblock(usable)
        free = decide.room(usable, may_wait=True)
        due, specs = await self._due(now, min(free, most), whole=whole) if free else ([], {})
        return usable, due, specs

    async def _both(self, now: datetime, most: int) -> tuple[list[ExecutorLoad], list[DueRun], Specs]:
        """The same by one statement."""
        self._aside.expire()
        beside = self._spare + len(self._aside) + len(self._refusals.left_out())
        if most + beside > runs_assign.MOST_LOOKED_AT:
            return await self._one_by_one(now, most)
        depths = self._depths()
        async with autocommit(self._deps.pool) as t:
            read = await runs_assign.loads_and_due(t, now, limit=most, beside=beside, known=self._known, queues=depths)
            self._whole.took(now.timestamp(), read.took)
            usable = self._usable_of(read.loads, depths, now)
            self._unblock(usable)
            free = decide.room(usable, may_wait=True)
            if not free:
                return usable, [], {}
            self._found = None if read.several else runs_assign.found_first(read.due, now, self._found)
            if not read.several:
                due = self._kept(read.due, min(free, most), one_scope=True)
                return usable, due, await self._definitions.find(t, {_version(run) for run in due})
        self._one_scope = False
        return usable, *await self._due(now, min(free, most))

    async def _due_offers(self, now: datetime, most: int, seen: Collection[int]) -> tuple[list[DueRun], Specs]:
        """Runs that go on with an external step: while others wait for executors, they are read apart."""
        async with autocommit(self._deps.pool) as t:
            found = await runs_assign.due_offers(t, now, limit=most + len(self._aside) + len(seen))
            due = [run for run in found if run.id not in self._aside and run.id not in seen]
            return due, await self._definitions.find(t, {_version(run) for run in due})

    async def _read_usable(self, now: datetime) -> list[ExecutorLoad]:
        async with autocommit(self._deps.pool) as t:
            return self._usable_of(await runs_assign.loads_again(t, now, self._known), self._depths(), now)

    def _depths(self) -> dict[str, int]:
        return self.prefetch.depths(self._deps.clock.monotonic(), self._prefetched(), self._refusals.full())

    def _prefetched(self) -> int:
        return self._deps.settings.known.whole("prefetch")

    def may_wait(self, spec: JobSpec, lost_count: int) -> bool:
        """Whether a run may wait at an executor for a slot, as far as its limits allow. Not where the loss of that executor would end it although it
        had not begun; nor where it has a group, whose other runs would wait for it, or a breaker, which may open meanwhile."""
        if not self._prefetched() or lost_count >= spec.max_lost:
            return False
        concurrency = spec.concurrency
        return not (concurrency.is_serial or concurrency.dedupe_keys or concurrency.breaker.failure_ratio)

    def _usable_of(
        self, executors: Sequence[ExecutorLoad], depths: Mapping[str, int], now: datetime
    ) -> list[ExecutorLoad]:
        fresh = decide.fresh_seconds(self._deps.settings.known)
        loads = self.prefetch.read(executors, depths, self._deps.clock.monotonic())
        loads = decide.without_queues(loads, self._needing_slots())
        usable = decide.usable(loads, now, self._sender.reach.avoided(), fresh=fresh)
        self._usable, self._pace = usable, decide.pace_seconds(usable)
        return usable

    def _needing_slots(self) -> list[JobSpec]:
        """Definitions of runs that may not wait at an executor and have waited for a slot for long enough."""
        waiting = [key for key in self._need_slots if not self._definitions.broken(key)]
        long = self._passed_over.for_long(waiting, self._deps.clock.monotonic())
        return [spec for key in long if (spec := self._definitions.known(key)) is not None]

    async def _due(self, now: datetime, most: int, *, whole: bool = True) -> tuple[list[DueRun], Specs]:
        """Without `whole`, what has come since the last read of all is enough while that takes long."""
        self._aside.expire()
        limit = most + self._spare + len(self._aside) + len(self._refusals.left_out())
        async with autocommit(self._deps.pool) as t:
            if not whole and (start := self._goes_on_from(now)) is not None:
                self._went_on, one_scope = True, True
                found = await runs_assign.due_runs_from(t, now, start, limit=limit, blocked=self._blocked)
            else:
                found, one_scope, took = await runs_assign.due_runs(
                    t, now, limit=limit, blocked=self._blocked, after=self._turns.start, one_scope=self._one_scope
                )
                self._whole.took(now.timestamp(), took)
                self._found = runs_assign.found_first(found, now, self._found) if one_scope else None
            due = self._kept(found, most, one_scope=one_scope)
            # The next read is the short one again when this one found no scopes that take turns.
            self._one_scope = one_scope or len({(r.priority, r.catch_up, r.scope, r.scope_id) for r in due}) < 2
            return due, await self._definitions.find(t, {_version(run) for run in due})

    def _kept(self, found: Sequence[DueRun], most: int, *, one_scope: bool) -> list[DueRun]:
        """Those of a read that a turn looks at, in the order in which they start: by rank, scopes in turn."""
        due = [run for run in found if run.id not in self._aside]
        if not one_scope:
            waiting = [(run.priority * 2 - run.catch_up, (run.scope, run.scope_id), run) for run in due]
            due = [run for _, run in self._turns.order(waiting, self._limits.weights())]
        return due[: most + self._spare + len(self._refusals.left_out())]

    def _unblock(self, usable: Sequence[ExecutorLoad]) -> None:
        for key in tuple(self._blocked):
            if self._definitions.broken(key):
                continue
            spec = self._definitions.known(key)
            waits = key not in self._need_slots
            if spec is None or any(e.takes(spec.selector) and e.room(may_wait=waits) for e in usable):
                self._blocked.discard(key)
                self._need_slots.discard(key)


def _version(run: DueRun) -> tuple[int, int]:
    return run.definition_id, run.definition_version
