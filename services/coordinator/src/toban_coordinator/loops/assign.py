"""Loop `assign`: due runs get an executor and a token and are sent at once; runs of the next seconds get the name of an executor."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from toban_coordinator.app import metrics
from toban_coordinator.app.adaptive_batch import AdaptiveBatch
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.limits.limit_gate import LimitGate, cancel_replaced
from toban_coordinator.app.placement.fast_path import FastPath
from toban_coordinator.app.placement.order_sender import OrderSender
from toban_coordinator.app.placement.placement_refusals import PlacementRefusals
from toban_coordinator.app.placement.run_marks import RunMarker
from toban_coordinator.app.placement.set_aside import SetAside
from toban_coordinator.app.placement.start_order import attempt_of, start_order, trace_origins
from toban_coordinator.decide.limits.groups import Groups
from toban_coordinator.decide.limits.limits import Admission
from toban_coordinator.decide.placement import assign as decide
from toban_coordinator.decide.placement.fair import RoundRobin
from toban_coordinator.decide.placement.search_pace import SearchPace
from toban_coordinator.loops.due_reads import DueRead, DueReads
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.ports.orders import StartOrder, Target
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.limits import limits
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.placement import runs_assign
from toban_coordinator.store.runs import deferred, runs_finish
from toban_domain.dispatches import next_step
from toban_domain.placement import DueRun, ExecutorLoad
from toban_domain.settings import Settings
from toban_domain.traceparent import TraceContext
from toban_domain.transitions import Defer, Finish, Hold, Offer, Placement, Release
from toban_store.errors import Refused, TooLong
from toban_store.tx import FencedTx, autocommit, fenced_statement, fenced_tx

# Runs that one turn places: its fenced transaction has to stay far below its bound.
BATCH = 500
# How often this loop looks ahead at most, seconds: while runs wait for a slot, and else.
LOOK_AHEAD_SECONDS, FREE_LOOK_AHEAD_SECONDS = 0.5, 0.1
# While nothing waits, free slots are read this often for the fast path, whose write checks the executor again anyway, seconds.
BOARD_SECONDS = 5.0
Move = decide.Placed | decide.Offered | Finish | Defer


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn goes by. Without `admission` no due run has limits, and without `groups` none has a group; the plan adds to both."""

    now: datetime
    settings: Settings
    # Runs that one transaction takes.
    batch: int
    read: DueRead
    admission: Admission | None
    groups: Groups | None


class Committed(NamedTuple):
    """What one transaction has moved: runs that were sent with the days of their logs, and counts; `refused`: a limit did not admit some."""

    days: dict[int, str]
    offered: int = 0
    finished: int = 0
    deferred: int = 0
    refused: bool = False


class Assign:
    """Reads what is due and who is free, decides, writes fenced, hands the orders to the sender without waiting for it."""

    def __init__(
        self,
        *,
        deps: LoopDeps,
        definitions: DefinitionCache,
        sender: OrderSender,
        marks: RunMarker,
        fast_path: FastPath,
        limits: LimitGate,
        refusals: PlacementRefusals,
    ) -> None:
        self._deps = deps
        self._marks = marks
        self._fast_path = fast_path
        self._definitions = definitions
        self._sender = sender
        self._limits, self._refusals = limits, refusals
        # Whose turn it is among tenants.
        self._turns = RoundRobin()
        self._looked_ahead_at, self._ahead = -math.inf, SearchPace()
        # The next time at which a run becomes due, by the last look ahead.
        self._next_due: datetime | None = None
        # Less than that while the fenced transaction does not fit into its bound, for example on a slow disk.
        self._batch = AdaptiveBatch(BATCH)
        self._aside = SetAside(clock=deps.clock)
        self._turned_at = 0.0
        self._reads = DueReads(
            deps=deps,
            definitions=definitions,
            sender=sender,
            limits=limits,
            refusals=refusals,
            turns=self._turns,
            aside=self._aside,
        )

    async def run_once(self) -> TurnOutcome:
        """One turn."""
        await self._keep_pace()
        async with self._fast_path.turn:
            outcome = await self._turn()
        soon = [wait for wait in (outcome.next_in, self._reads.whole_in) if wait is not None]
        return replace(outcome, next_in=min(soon, default=None))

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when a run is due or comes into view, and when what the fast path knows of free slots has aged."""
        if agenda.pending or agenda.ordered or self._reads.has_blocked:
            return None
        aged = self._deps.clock.monotonic() - self._turned_at >= BOARD_SECONDS or not self._fast_path.untouched
        return None if aged else TurnOutcome(0, _seconds_to(agenda.next_due, self._deps.server_time.now()))

    async def _turn(self) -> TurnOutcome:
        # Whatever this turn finds or fails on: what was free before is not known to be free any more.
        self._fast_path.close()
        turn = await self._begin()
        read, batch = turn.read, turn.batch
        plan = decide.plan(
            read.due,
            read.usable,
            read.specs,
            now=turn.now,
            late_seconds=turn.settings["skip_late_runs_after_seconds"],
            most=batch,
            admission=turn.admission,
            groups=turn.groups,
            left_out=self._refusals.left_out(),
            may_wait=self._reads.may_wait,
        )
        self._reads.planned(plan)
        moves: list[Move] = [*plan.placed, *plan.offers, *plan.skips, *plan.defers]
        moved, refused = await self._write(turn, moves, plan.releases)
        if not read.one_scope:
            started = [p.run for p in plan.placed] or [o.run for o in plan.offers]
            self._turns.started([(run.scope, run.scope_id) for run in started], self._limits.weights())
        if turn.groups is not None and turn.groups.cancels:
            await cancel_replaced(self._deps.pool, self._deps.term, turn.groups.cancels, self._definitions)
        # The orders go out before this turn goes on.
        await asyncio.sleep(0)
        # Runs that wait behind what cannot be placed now are not in view yet.
        free = decide.room(read.usable, may_wait=True)
        hidden = plan.unplaced and len(plan.placed) < free and len(read.due) > free
        if moved < batch and not self._reads.runs_wait(read.usable):
            self._fast_path.open(plan.board)
        if plan.skips or plan.defers or hidden or refused or moved >= batch:
            return TurnOutcome(moved, 0.0)
        at = self._deps.clock.monotonic()
        looked = at - self._looked_ahead_at
        if self._reads.has_blocked and looked < LOOK_AHEAD_SECONDS:
            # Runs wait for a slot: the report that frees one wakes this loop.
            return TurnOutcome(moved, None if read.offers_at is None else max(0.001, read.offers_at - at))
        if (wait := max(FREE_LOOK_AHEAD_SECONDS - looked, self._ahead.waits(turn.now.timestamp()))) > 0:
            if self._next_due is not None and self._next_due > turn.now:
                wait = min(wait, (self._next_due - turn.now).total_seconds())
            return TurnOutcome(moved, wait)
        return await self._look_ahead(turn, moved)

    async def _begin(self) -> Turn:
        now, batch = self._deps.server_time.now(), self._batch.size
        settings = await self._deps.settings.get()
        read = await self._reads.read(now, batch)
        limited: tuple[Admission | None, Groups | None] = None, None
        if any(self._limits.concerns(spec) for spec in read.specs.values()):
            async with autocommit(self._deps.pool) as t:
                limited = await self._limits.admission(t, read.due, read.specs, now) or limited
        admission, groups = limited
        return Turn(now=now, settings=settings, batch=batch, read=read, admission=admission, groups=groups)

    async def close(self) -> None:
        """The term is over."""
        self._fast_path.close()
        self._deps.fast_path.clear(self._fast_path)
        await self._marks.close()

    async def _keep_pace(self) -> None:
        wait = self._reads.pace_seconds - (self._deps.clock.monotonic() - self._turned_at)
        if wait > 0:
            await self._deps.clock.sleep(wait)
        self._turned_at = self._deps.clock.monotonic()

    async def _write(self, turn: Turn, moves: Sequence[Move], releases: Sequence[Release]) -> tuple[int, bool]:
        """How many runs were moved, in as many transactions as fit, and whether a limit did not admit some any more. A run that PostgreSQL refuses,
        or that alone takes too long, is set aside."""
        self._marks.begin([move.run.id for move in moves if isinstance(move, decide.Placed)])
        released = {release.run_id: release for release in releases}
        moved, refused = 0, False

        async def write(part: Sequence[Move]) -> None:
            nonlocal moved, refused
            done = await self._write_part(turn, part, released)
            moved += len(done.days) + done.offered + done.finished + done.deferred
            refused = refused or done.refused

        async def alone(move: Move, error: Refused | TooLong) -> None:
            self._aside.put(_run_id(move), error)

        await self._batch.each(moves, write, alone)
        return moved, refused

    async def _write_part(self, turn: Turn, part: Sequence[Move], released: Mapping[int, Release]) -> Committed:
        specs = turn.read.specs
        tokens = [(move, self._deps.tokens.next_token()) for move in part if isinstance(move, decide.Placed)]
        offers = [
            move.offer(self._deps.tokens.next_token(), specs[_version(move.run)])
            for move in part
            if isinstance(move, decide.Offered)
        ]
        skips = [move for move in part if isinstance(move, Finish)]
        defers = [move for move in part if isinstance(move, Defer)]
        placements = [
            Placement(
                run_id=placed.run.id,
                token=token,
                incarnation=placed.executor.incarnation,
                next_step=next_step(specs[_version(placed.run)], placed.run.first_step or 0),
            )
            for placed, token in tokens
        ]
        if offers or defers or skips or turn.admission is not None:
            back = [*(skip.run_id for skip in skips), *(one.run_id for one in defers)]
            releases = [released[run] for run in back if run in released]
            due = {move.run.id: move.run for move in part if isinstance(move, decide.Placed | decide.Offered)}
            done = await self._commit_all(turn, decide.Moves(placements, offers, releases, skips, defers, due))
        else:
            # The common case, in one round trip.
            async with fenced_statement(self._deps.quick, self._deps.term) as lone:
                done = Committed(await runs_assign.place(lone, placements))
        sent = [(p, token) for p, token in tokens if p.run.id in done.days]
        origins = await trace_origins(self._deps.pool, [p.run.id for p, _ in sent if p.run.slot is None])
        self._send(turn, sent, done.days, origins)
        return done

    async def _commit_all(self, turn: Turn, moves: decide.Moves) -> Committed:
        """All of `moves` in one transaction; runs that a limit does not admit any more stay PENDING."""
        placements, offers, admission = moves.placements, moves.offers, turn.admission
        holds: list[Hold] = []
        refused = False
        async with fenced_tx(self._deps.pool, self._deps.term, first="" if admission is None else limits.LOCK) as t:
            if admission is not None:
                planned: list[Placement | Offer] = [*placements, *offers]
                admitted = await self._limits.enter(t, planned, moves.due, admission)
                admitted = await self._claim(t, turn.groups, admitted)
                # What the plan could not know: it is made again.
                refused = len(admitted) < len(planned)
                allowed = {one.run_id for one in admitted}
                placements = [p for p in placements if p.run_id in allowed]
                offers = [o for o in offers if o.run_id in allowed]
                holds = self._limits.holds(placements, admission)
            days = await runs_assign.place(t, placements, holds)
            offered = await external_claims.offer(t, offers)
            if admission is not None:
                sent: list[Placement | Offer] = [
                    *(p for p in placements if p.run_id in days),
                    *(o for o in offers if o.run_id in offered),
                ]
                await self._limits.hold(t, sent, moves.due, admission)
            await runs_finish.release(t, moves.releases)
            waiting = await deferred.defer(t, moves.defers)
            finished = await runs_finish.finish(t, moves.skips)
        if admission is not None:
            self._limits.committed()
        metrics.count_finished(finished)
        metrics.deferred.inc(len(waiting))
        return Committed(days, len(offered), len(finished), len(waiting), refused)

    async def _claim(
        self, t: FencedTx, groups: Groups | None, sent: Sequence[Placement | Offer]
    ) -> list[Placement | Offer]:
        """Runs of policy reject_same_scope hold their groups when they are sent; one that is too late is looked at again."""
        claims = set(groups.claims.values()) if groups is not None else set()
        claiming = [one.run_id for one in sent if one.run_id in claims]
        held = await limits.claim(t, claiming) if claiming else set()
        return [one for one in sent if one.run_id not in claims or one.run_id in held]

    def _send(
        self,
        turn: Turn,
        placed: Sequence[tuple[decide.Placed, int]],
        days: dict[int, str],
        origins: Mapping[int, TraceContext],
    ) -> None:
        cluster = self._deps.term.system_id
        orders: dict[str, list[StartOrder]] = defaultdict(list)
        executors: dict[str, ExecutorLoad] = {}
        for p, token in placed:
            executors[p.executor.incarnation] = p.executor
            spec = turn.read.specs[_version(p.run)]
            attempt = attempt_of(p.run, token, days[p.run.id], origins.get(p.run.id), may_wait=p.may_wait)
            orders[p.executor.incarnation].append(start_order(attempt, spec, cluster=cluster))
        for incarnation, batch in orders.items():
            self._reads.prefetch.sent(incarnation, len(batch))
            executor = executors[incarnation]
            smallest = min(batch[0].key.token, executor.smallest_token or batch[0].key.token)
            target = Target(incarnation, executor.worker_id, executor.address)
            self._sender.start(target, batch, smallest_live=smallest)

    async def _look_ahead(self, turn: Turn, moved: int) -> TurnOutcome:
        """When to turn next; and names of executors for runs that are not due yet: no token, no slot."""
        self._looked_ahead_at = self._deps.clock.monotonic()
        until = turn.now + timedelta(seconds=turn.settings["assign_ahead_seconds"])
        async with autocommit(self._deps.pool) as t:
            outlook = await runs_assign.outlook(t, turn.now, until)
        self._ahead.took(turn.now.timestamp(), outlook.took)
        self._next_due = outlook.next_due
        if outlook.unnamed:
            moved += await self._name_ahead(turn, until)
        return TurnOutcome(moved, _seconds_to(outlook.next_due, turn.now))

    async def _name_ahead(self, turn: Turn, until: datetime) -> int:
        async with autocommit(self._deps.pool) as t:
            runs = await runs_assign.ahead_runs(t, turn.now, until, limit=BATCH)
            specs = await self._definitions.find(t, {(run.definition_id, run.definition_version) for run in runs})
        wanted = [
            (run.id, spec)
            for run in runs
            if run.id not in self._aside
            and (spec := specs.get((run.definition_id, run.definition_version))) is not None
        ]
        named: set[int] = set()

        async def write(names: Sequence[tuple[int, ExecutorLoad]]) -> None:
            async with fenced_tx(self._deps.pool, self._deps.term) as t:
                named.update(
                    await runs_assign.name_executors(t, [(run, executor.incarnation) for run, executor in names])
                )

        async def alone(name: tuple[int, ExecutorLoad], error: Refused | TooLong) -> None:
            self._aside.put(name[0], error)

        await self._batch.each(decide.name_ahead(wanted, turn.read.usable), write, alone)
        return len(named)


def _run_id(move: Move) -> int:
    return move.run.id if isinstance(move, decide.Placed | decide.Offered) else move.run_id


def _version(run: DueRun) -> tuple[int, int]:
    return run.definition_id, run.definition_version


def _seconds_to(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else max(0.001, (at - now).total_seconds())
