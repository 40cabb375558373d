"""The short way of a run on demand: the leader makes and places it in one write, while nothing waits and loop `assign` rests.

call ──▶ rests? nothing waits? a slot that fits? ──▶ one fenced write: run, token, executor ──▶ order ──▶ answer
                      └── no ──▶ the long way: the run is made PENDING and loop `assign` is woken
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.decide.assign import Board, fresh_seconds
from toban_coordinator.loops.order_sender import Sender
from toban_coordinator.loops.run_marks import Marking
from toban_coordinator.loops.run_traces import dispatch_span
from toban_coordinator.loops.start_order import start_order
from toban_coordinator.loops.term_loop import LoopDeps
from toban_coordinator.ports.express import Specs
from toban_coordinator.ports.orders import StartOrder, Target
from toban_coordinator.store import runs_start_assigned
from toban_coordinator.store.runs import NewRun
from toban_coordinator.store.runs_start_assigned import MadePlaced, NewPlaced
from toban_domain.epoch import EpochExhausted
from toban_domain.errors import FencedOut
from toban_domain.outcome import AttemptKey
from toban_domain.placement import ExecutorLoad
from toban_observability import metrics
from toban_store.errors import DidNotHappen, OutcomeUnknown
from toban_store.tx import fenced_statement

_placed = metrics.counter(
    "toban_express_total", "On-demand runs by path: express (assigned on creation) or declined (queued).", ("result",)
)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A run that is about to be made, and the executor that it goes to."""

    new: NewPlaced
    executor: ExecutorLoad


class Express:
    """One term's short way. `turn` is held by whoever places: loop `assign` during its turns, this during its write."""

    def __init__(self, *, deps: LoopDeps, sender: Sender, marks: Marking) -> None:
        self._deps = deps
        self._sender = sender
        self._marks = marks
        self.turn = asyncio.Lock()
        self._board: Board | None = None
        self._used = False
        self._work: set[asyncio.Task[list[int] | None]] = set()

    def open(self, board: Board) -> None:
        """Nothing waits, and these slots are free. They only become more until the next turn, but for what is placed here."""
        self._board, self._used = board, False

    @property
    def untouched(self) -> bool:
        """True while slots are known and nothing was placed by them."""
        return self._board is not None and not self._used

    def close(self) -> None:
        """Something waits: whoever came first goes first."""
        self._board = None

    async def place(self, new: Sequence[NewRun], specs: Specs, *, actor: str) -> list[int] | None:
        """The ids of `new`, made and on their way; None when they have to go the long way, and nothing was made.

        Raises OutcomeUnknown when the connection broke under the commit.
        """
        made = None
        if not self.turn.locked() and self._board is not None:
            # A caller that gives up changes nothing: what is written is sent.
            work = asyncio.create_task(self._in_turn(new, specs, actor))
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

    async def _in_turn(self, new: Sequence[NewRun], specs: Specs, actor: str) -> list[int] | None:
        async with self.turn:
            # Another turn may have come in between.
            return None if self._board is None else await self._place(self._board, new, specs, actor)

    async def _place(self, board: Board, new: Sequence[NewRun], specs: Specs, actor: str) -> list[int] | None:
        self._used = True
        taken = self._take(board, new, specs)
        if taken is None:
            self.close()
            return None
        try:
            made = await self._write([one.new for one in taken], actor)
        except (DidNotHappen, FencedOut):
            made = None
        except OutcomeUnknown:
            self.close()
            raise
        if made is None:
            self.close()
            return None
        self._marks.begin([run.id for run in made])
        self._send(taken, made, specs)
        return [run.id for run in made]

    def _take(self, board: Board, new: Sequence[NewRun], specs: Specs) -> list[_Taken] | None:
        avoided = self._sender.reach.avoided()
        taken: list[_Taken] = []
        for run in new:
            executor = board.take(specs[(run.definition_id, run.version)])
            if executor is None or executor.incarnation in avoided:
                return None
            try:
                token = self._deps.tokens.draw()
            except EpochExhausted:
                # The next turn of `assign` finds it too, and ends the term.
                return None
            taken.append(_Taken(NewPlaced(run=run, token=token, incarnation=executor.incarnation), executor))
        return taken

    async def _write(self, new: Sequence[NewPlaced], actor: str) -> list[MadePlaced] | None:
        fresh = fresh_seconds(self._deps.settings.known)
        async with fenced_statement(self._deps.quick, self._deps.term) as t:
            return await runs_start_assigned.express(t, new, actor=actor, fresh_seconds=fresh)

    def _send(self, taken: Sequence[_Taken], made: Sequence[MadePlaced], specs: Specs) -> None:
        orders: dict[str, list[StartOrder]] = defaultdict(list)
        executors: dict[str, ExecutorLoad] = {}
        for one, run in zip(taken, made, strict=True):
            executors[one.executor.incarnation] = one.executor
            orders[one.executor.incarnation].append(_order(one.new, run, specs, self._deps.term.system_id))
        for incarnation, batch in orders.items():
            executor = executors[incarnation]
            # 0: which token is the smallest that lives there is for `assign` to say, which has just looked.
            self._sender.start(Target(incarnation, executor.worker_id, executor.address), batch, smallest_live=0)


def _order(new: NewPlaced, made: MadePlaced, specs: Specs, cluster: str) -> StartOrder:
    run = new.run
    key = AttemptKey(made.id, new.token)
    return start_order(
        key,
        specs[(run.definition_id, run.version)],
        version=run.version,
        attempt=1,
        payload=run.payload,
        slot=None,
        timeout_seconds=run.timeout_seconds,
        log_day=made.log_day,
        span=dispatch_span(key, cluster=cluster, job=run.job, attempt=1, place=run.place),
    )
