"""Fast path: create and assign an on-demand run in one statement when the queue is empty.

call ──▶ `assign` idle? queue empty? a slot that fits? ──▶ one fenced write: run, token, executor ──▶ order ──▶ answer
                      └── no ──▶ normal path: the run is made PENDING and loop `assign` is woken
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from toban_coordinator.app.placement.order_sender import OrderSender
from toban_coordinator.app.placement.run_marks import RunMarker
from toban_coordinator.app.placement.start_order import Attempt, start_order
from toban_coordinator.decide.placement.assign import Board, fresh_seconds
from toban_coordinator.ports.orders import StartOrder, Target
from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.store.placement import runs_start_assigned
from toban_coordinator.store.placement.runs_start_assigned import MadePlaced, NewPlaced
from toban_coordinator.store.runs.runs import NewRun
from toban_domain.epoch import EpochExhausted, Term, TokenSource
from toban_domain.errors import FencedOut
from toban_domain.job import JobSpec
from toban_domain.outcome import AttemptKey
from toban_domain.placement import ExecutorLoad
from toban_observability import metrics
from toban_runtime.loop import WakeRegistry
from toban_store.errors import DidNotHappen, OutcomeUnknown
from toban_store.pool import Pool
from toban_store.tx import fenced_statement

# Larger calls take the normal path, where runs are placed in batches.
MAX_RUNS = 32
Specs = Mapping[tuple[int, int], JobSpec]

_placed = metrics.counter(
    "toban_express_total", "On-demand runs by path: express (assigned on creation) or declined (queued).", ("result",)
)


class RunPlacer(Protocol):
    """Makes and places runs in one write."""

    @property
    def nothing_waits(self) -> bool:
        """Whether no run waits for a slot, as far as this process knows."""
        ...

    async def place(self, new: Sequence[NewRun], specs: Specs, *, actor: str, reason: str = "") -> list[int] | None:
        """The ids of `new`, made and on their way; None when they must take the normal path, and nothing was made."""
        ...


class CurrentFastPath:
    """The fast path of the present term, as calls see it: set while this process leads."""

    def __init__(self) -> None:
        self._path: RunPlacer | None = None

    def set(self, path: RunPlacer) -> None:
        """A term begins to place runs."""
        self._path = path

    def clear(self, path: RunPlacer) -> None:
        """That term is over."""
        if self._path is path:
            self._path = None

    def wake_waiting(self, wakes: WakeRegistry) -> None:
        """Slots have become free: loop `assign` is woken unless no run waits for one."""
        if self._path is None or not self._path.nothing_waits:
            wakes.wake("assign")

    def accepts(self, count: int) -> bool:
        """Whether `place` may succeed for so many runs."""
        return self._path is not None and count <= MAX_RUNS

    async def place(self, new: Sequence[NewRun], specs: Specs, *, actor: str, reason: str = "") -> list[int] | None:
        """As RunPlacer.place; None while this process does not lead, or when a run is for later."""
        if self._path is None or any(run.scheduled_for is not None for run in new):
            return None
        return await self._path.place(new, specs, actor=actor, reason=reason)


@dataclass(frozen=True, slots=True)
class _Reserved:
    """A run that is about to be made, and the executor that it goes to."""

    new: NewPlaced
    executor: ExecutorLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPathDeps:
    """What the fast path of one term works with. `quick` has tight bounds, for lone fenced statements."""

    quick: Pool
    term: Term
    tokens: TokenSource
    settings: SettingsSource
    sender: OrderSender
    marks: RunMarker
    # Whether runs of a definition may have limits, or are not done in one dispatch: those take the normal path.
    limited: Callable[[JobSpec], bool] = lambda _spec: False


class FastPath:
    """The fast path of one term. `turn` is held by the one that places: loop `assign` during its turns, this during its write."""

    def __init__(self, *, deps: FastPathDeps) -> None:
        self._deps = deps
        self.turn = asyncio.Lock()
        self._board: Board | None = None
        self._used = False
        self._work: set[asyncio.Task[list[int] | None]] = set()

    def open(self, board: Board) -> None:
        """No run waits, and these slots are free. Until the next turn only this object fills slots."""
        self._board, self._used = board, False

    @property
    def nothing_waits(self) -> bool:
        """True from a turn that has left no run waiting for a slot until the next one."""
        return self._board is not None

    @property
    def untouched(self) -> bool:
        """True while slots are known and nothing was placed by them."""
        return self._board is not None and not self._used

    def close(self) -> None:
        """Runs wait: the oldest go first."""
        self._board = None

    async def place(self, new: Sequence[NewRun], specs: Specs, *, actor: str, reason: str = "") -> list[int] | None:
        """The ids of `new`, made and on their way; None when they must take the normal path, and nothing was made.

        Raises OutcomeUnknown when the connection broke under the commit.
        """
        made = None
        limited = any(self._deps.limited(spec) for spec in specs.values())
        if not limited and not self.turn.locked() and self._board is not None:
            # A caller that gives up changes nothing: what is written is sent.
            work = asyncio.create_task(self._in_turn(new, specs, actor, reason))
            self._work.add(work)
            work.add_done_callback(self._done)
            made = await asyncio.shield(work)
        _placed.labels("declined" if made is None else "express").inc(len(new))
        return made

    def _done(self, work: asyncio.Task[list[int] | None]) -> None:
        self._work.discard(work)
        if not work.cancelled():
            # Taken here, so that an error whose caller has gone is not reported as lost.
            work.exception()

    async def _in_turn(self, new: Sequence[NewRun], specs: Specs, actor: str, reason: str) -> list[int] | None:
        async with self.turn:
            # Another turn may have come in between.
            return None if self._board is None else await self._place(self._board, new, specs, actor, reason)

    async def _place(
        self, board: Board, new: Sequence[NewRun], specs: Specs, actor: str, reason: str
    ) -> list[int] | None:
        self._used = True
        reserved = self._reserve(board, new, specs)
        if reserved is None:
            self.close()
            return None
        try:
            made = await self._write([one.new for one in reserved], actor, reason)
        except (DidNotHappen, FencedOut):
            made = None
        except OutcomeUnknown:
            self.close()
            raise
        if made is None:
            self.close()
            return None
        self._deps.marks.begin([run.id for run in made])
        self._send(reserved, made, specs)
        return [run.id for run in made]

    def _reserve(self, board: Board, new: Sequence[NewRun], specs: Specs) -> list[_Reserved] | None:
        avoided = self._deps.sender.reach.avoided()
        reserved: list[_Reserved] = []
        for run in new:
            executor = board.take(specs[(run.definition_id, run.version)])
            if executor is None or executor.incarnation in avoided:
                return None
            try:
                token = self._deps.tokens.next_token()
            except EpochExhausted:
                # The next turn of `assign` finds it too, and ends the term.
                return None
            reserved.append(_Reserved(NewPlaced(run=run, token=token, incarnation=executor.incarnation), executor))
        return reserved

    async def _write(self, new: Sequence[NewPlaced], actor: str, reason: str) -> list[MadePlaced] | None:
        fresh = fresh_seconds(self._deps.settings.known)
        async with fenced_statement(self._deps.quick, self._deps.term) as t:
            return await runs_start_assigned.start_assigned(t, new, actor=actor, fresh_seconds=fresh, reason=reason)

    def _send(self, reserved: Sequence[_Reserved], made: Sequence[MadePlaced], specs: Specs) -> None:
        orders: dict[str, list[StartOrder]] = defaultdict(list)
        executors: dict[str, ExecutorLoad] = {}
        for one, run in zip(reserved, made, strict=True):
            executors[one.executor.incarnation] = one.executor
            orders[one.executor.incarnation].append(_order(one.new, run, specs, self._deps.term.system_id))
        for incarnation, batch in orders.items():
            executor = executors[incarnation]
            # 0: which token is the smallest that lives there is for `assign` to say, which has just looked.
            self._deps.sender.start(Target(incarnation, executor.worker_id, executor.address), batch, smallest_live=0)


def _order(new: NewPlaced, made: MadePlaced, specs: Specs, cluster: str) -> StartOrder:
    run = new.run
    attempt = Attempt(
        key=AttemptKey(made.id, new.token),
        version=run.version,
        number=1,
        payload=run.payload,
        slot=None,
        timeout_seconds=run.timeout_seconds,
        log_day=made.log_day,
        origin=run.place,
    )
    return start_order(attempt, specs[(run.definition_id, run.version)], cluster=cluster)
