"""Builds the loops of one term."""

from __future__ import annotations

from toban_coordinator.loops.assign import Assign
from toban_coordinator.loops.cluster_metrics import TICK_SECONDS as CENSUS_SECONDS
from toban_coordinator.loops.cluster_metrics import Census
from toban_coordinator.loops.definition_cache import Definitions
from toban_coordinator.loops.dispatch import Dispatch
from toban_coordinator.loops.events import TICK_SECONDS as EVENTS_SECONDS
from toban_coordinator.loops.events import Events
from toban_coordinator.loops.fast_path import Express
from toban_coordinator.loops.fire import Fire
from toban_coordinator.loops.order_results import OrderAnswers
from toban_coordinator.loops.order_sender import Sender
from toban_coordinator.loops.payload_validator import Payloads
from toban_coordinator.loops.pending_work_poller import Question
from toban_coordinator.loops.prune import TICK_SECONDS as PRUNE_SECONDS
from toban_coordinator.loops.prune import Prune
from toban_coordinator.loops.reap import Reap
from toban_coordinator.loops.run_marks import Marking
from toban_coordinator.loops.term_loop import LoopDeps, TermLoop
from toban_runtime.loop import Loop


def leader_loops(deps: LoopDeps) -> list[Loop]:
    """Fresh loops for one term: fire, events, assign, dispatch, reap, prune, census. Cancel them when the term ends; nothing of them goes on then."""
    definitions, question = Definitions(), Question(deps=deps)
    answers = OrderAnswers(pool=deps.pool, term=deps.term, server_time=deps.server_time, definitions=definitions)
    sender = Sender(orders=deps.orders, term=deps.term, answers=answers, clock=deps.clock)
    fire = Fire(deps=deps, definitions=definitions, payloads=Payloads())
    events = Events(deps=deps, definitions=definitions, payloads=Payloads())
    marks = Marking(marks=deps.marks, term=deps.term)
    express = Express(deps=deps, sender=sender, marks=marks)
    deps.desk.lend(express)
    assign = Assign(deps=deps, definitions=definitions, sender=sender, marks=marks, express=express)
    dispatch = Dispatch(deps=deps, definitions=definitions, sender=sender)
    reap = Reap(deps=deps, definitions=definitions, answers=answers)
    census = Census(deps=deps, definitions=definitions)
    return [
        TermLoop("fire", fire.run_once, deps.tick, deps, rests=question.rests(fire.rests)),
        TermLoop("events", events.run_once, EVENTS_SECONDS, deps, rests=question.rests(events.rests)),
        TermLoop("assign", assign.run_once, deps.tick, deps, rests=question.rests(assign.rests), close=assign.close),
        TermLoop(
            "dispatch", dispatch.run_once, deps.tick, deps, rests=question.rests(dispatch.rests), close=sender.close
        ),
        TermLoop("reap", reap.run_once, deps.tick, deps, rests=question.rests(reap.rests)),
        TermLoop("prune", Prune(deps=deps).run_once, PRUNE_SECONDS, deps),
        TermLoop("census", census.run_once, CENSUS_SECONDS, deps),
    ]
