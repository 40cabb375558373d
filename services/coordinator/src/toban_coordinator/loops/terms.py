"""Builds the loops of one term."""

from __future__ import annotations

from toban_coordinator.loops.answers import OrderAnswers
from toban_coordinator.loops.assign import Assign
from toban_coordinator.loops.base import LoopDeps, TermLoop
from toban_coordinator.loops.definitions import Definitions
from toban_coordinator.loops.dispatch import Dispatch
from toban_coordinator.loops.fire import Fire
from toban_coordinator.loops.marking import Marking
from toban_coordinator.loops.payloads import Payloads
from toban_coordinator.loops.prune import TICK_SECONDS as PRUNE_SECONDS
from toban_coordinator.loops.prune import Prune
from toban_coordinator.loops.reap import Reap
from toban_coordinator.loops.sender import Sender
from toban_runtime.loop import Loop

TICK_SECONDS = 1.0


def leader_loops(deps: LoopDeps) -> list[Loop]:
    """Fresh loops for one term: fire, assign, dispatch, reap, prune. Cancel them when the term ends; nothing of them goes on then."""
    definitions = Definitions()
    answers = OrderAnswers(pool=deps.pool, term=deps.term, server_time=deps.server_time, definitions=definitions)
    sender = Sender(orders=deps.orders, term=deps.term, answers=answers, clock=deps.clock)
    fire = Fire(deps=deps, definitions=definitions, payloads=Payloads())
    assign = Assign(deps=deps, definitions=definitions, sender=sender, marks=Marking(marks=deps.marks, term=deps.term))
    dispatch = Dispatch(deps=deps, definitions=definitions, sender=sender)
    reap = Reap(deps=deps, definitions=definitions, answers=answers)
    return [
        TermLoop("fire", fire.run_once, TICK_SECONDS, deps),
        TermLoop("assign", assign.run_once, TICK_SECONDS, deps, close=assign.close),
        TermLoop("dispatch", dispatch.run_once, TICK_SECONDS, deps, close=sender.close),
        TermLoop("reap", reap.run_once, TICK_SECONDS, deps),
        TermLoop("prune", Prune(deps=deps).run_once, PRUNE_SECONDS, deps),
    ]
