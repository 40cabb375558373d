"""Builds the loops of one term."""

from __future__ import annotations

from collections.abc import Callable

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.executors.order_results import EndedAttempts, OrderResults
from toban_coordinator.app.limits.limit_gate import LimitGate
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.placement.fast_path import FastPath, FastPathDeps
from toban_coordinator.app.placement.order_sender import OrderSender
from toban_coordinator.app.placement.placement_refusals import PlacementRefusals
from toban_coordinator.app.placement.run_marks import RunMarker
from toban_coordinator.loops.assign import Assign
from toban_coordinator.loops.audit import TICK_SECONDS as AUDIT_SECONDS
from toban_coordinator.loops.audit import AuditChain
from toban_coordinator.loops.cluster_metrics import TICK_SECONDS as CLUSTER_METRICS_SECONDS
from toban_coordinator.loops.cluster_metrics import ClusterMetrics
from toban_coordinator.loops.dispatch import Dispatch
from toban_coordinator.loops.events import Events
from toban_coordinator.loops.executor_leases import (
    LEASE_TICK_SECONDS,
    ORDERS_TICK_SECONDS,
    LeaseDeps,
    LeaseKeeper,
    OverdueOrders,
)
from toban_coordinator.loops.external_locks import ClaimObserver, ExternalLocks
from toban_coordinator.loops.fire import Fire
from toban_coordinator.loops.notices import TICK_SECONDS as NOTICES_SECONDS
from toban_coordinator.loops.notices import Notices
from toban_coordinator.loops.pauses import TICK_SECONDS as PAUSES_SECONDS
from toban_coordinator.loops.pauses import Pauses
from toban_coordinator.loops.pending_work_poller import PendingWorkPoller
from toban_coordinator.loops.prune import TICK_SECONDS as PRUNE_SECONDS
from toban_coordinator.loops.prune import Prune
from toban_coordinator.loops.reap import Reap
from toban_coordinator.loops.reconcile import Reconcile
from toban_coordinator.loops.resume import LIMITS_SECONDS, Limits, Resume
from toban_coordinator.loops.term_loop import LoopDeps, TermLoop
from toban_domain.dispatches import has_external_step
from toban_domain.epoch import Term
from toban_runtime.loop import Loop, TurnResult


def leader_loops(deps: LoopDeps, observer: ClaimObserver) -> list[Loop]:
    """Fresh loops for one term: fire, events, assign, resume, limits, dispatch, reap, reconcile, external, pauses, notices, prune, audit,
    cluster_metrics.

    Cancel them when the term ends; nothing of them goes on then.
    """
    definitions, pending = DefinitionCache(), PendingWorkPoller(deps=deps)
    ended, refusals = EndedAttempts(clock=deps.clock), PlacementRefusals(clock=deps.clock)
    answers = _order_results(deps, definitions, ended, refusals)
    sender = OrderSender(orders=deps.orders, term=deps.term, answers=answers, clock=deps.clock, holds=deps.holds)
    fire = Fire(deps=deps, definitions=definitions, payloads=PayloadValidator())
    events = Events(deps=deps, definitions=definitions, payloads=PayloadValidator())
    marks, gate = RunMarker(marks=deps.marks, term=deps.term), LimitGate()
    fast_path = FastPath(
        deps=FastPathDeps(
            quick=deps.quick,
            term=deps.term,
            tokens=deps.tokens,
            settings=deps.settings,
            sender=sender,
            marks=marks,
            limited=lambda spec: gate.concerns(spec) or has_external_step(spec),
        )
    )
    deps.fast_path.set(fast_path)
    assign = Assign(
        deps=deps,
        definitions=definitions,
        sender=sender,
        marks=marks,
        fast_path=fast_path,
        limits=gate,
        refusals=refusals,
    )
    assigning, *limit_loops = _assign_and_limits(deps, pending, assign, gate)
    dispatch = Dispatch(deps=deps, definitions=definitions, sender=sender)
    reap = Reap(deps=deps, definitions=definitions, answers=answers)
    reconcile = Reconcile(deps=deps, definitions=definitions, sender=sender, ended=ended)
    external = ExternalLocks(deps=deps, definitions=definitions, observer=observer)
    return [
        TermLoop("fire", fire.run_once, deps.tick, deps, idle_turn=pending.idle_turn(fire.idle_turn)),
        TermLoop("events", events.run_once, deps.tick, deps, idle_turn=pending.idle_turn(events.idle_turn)),
        assigning,
        *limit_loops,
        TermLoop(
            "dispatch",
            dispatch.run_once,
            deps.tick,
            deps,
            idle_turn=pending.idle_turn(dispatch.idle_turn),
            close=sender.close,
        ),
        TermLoop("reap", reap.run_once, deps.tick, deps, idle_turn=pending.idle_turn(reap.idle_turn)),
        TermLoop("reconcile", reconcile.run_once, deps.tick, deps, idle_turn=pending.idle_turn(reconcile.idle_turn)),
        TermLoop("external", external.run_once, external.tick, deps, idle_turn=pending.idle_turn(external.idle_turn)),
        *_upkeep(deps, pending, definitions),
    ]


def _order_results(
    deps: LoopDeps, definitions: DefinitionCache, ended: EndedAttempts, refusals: PlacementRefusals
) -> OrderResults:
    """What answers of executors lead to."""
    return OrderResults(
        pool=deps.pool,
        term=deps.term,
        server_time=deps.server_time,
        definitions=definitions,
        ended=ended,
        refusals=refusals,
    )


def _upkeep(deps: LoopDeps, pending: PendingWorkPoller, definitions: DefinitionCache) -> list[TermLoop]:
    """Loops pauses, notices, prune, audit and cluster_metrics, which move no run."""
    audit, cluster_metrics = AuditChain(deps=deps), ClusterMetrics(deps=deps, definitions=definitions)
    return [
        TermLoop("pauses", Pauses(deps=deps).run_once, PAUSES_SECONDS, deps),
        TermLoop("notices", Notices(deps=deps).run_once, NOTICES_SECONDS, deps),
        TermLoop("prune", Prune(deps=deps).run_once, PRUNE_SECONDS, deps),
        TermLoop("audit", audit.run_once, AUDIT_SECONDS, deps, idle_turn=pending.idle_turn(audit.idle_turn)),
        TermLoop("cluster_metrics", cluster_metrics.run_once, CLUSTER_METRICS_SECONDS, deps),
    ]


def _assign_and_limits(deps: LoopDeps, pending: PendingWorkPoller, assign: Assign, gate: LimitGate) -> list[TermLoop]:
    """Loops assign, resume and limits: a change of limits wakes the second, and what it resumes the first."""
    assigning = TermLoop(
        "assign",
        assign.run_once,
        deps.tick,
        deps,
        idle_turn=pending.idle_turn(assign.idle_turn),
        close=assign.close,
    )
    resume = Resume(deps=deps, gate=gate, on_resumed=assigning.wake)
    resuming = TermLoop("resume", resume.run_once, deps.tick, deps, idle_turn=pending.idle_turn(resume.idle_turn))
    limits = Limits(deps=deps, gate=gate, on_changed=resuming.wake)
    return [assigning, resuming, TermLoop("limits", limits.run_once, LIMITS_SECONDS, deps)]


def lease_loops(deps: LeaseDeps, term: Term, on_turn: Callable[[TurnResult], None]) -> list[Loop]:
    """Fresh loops for one term: lease, orders."""
    keeper = LeaseKeeper(deps=deps, term=term)
    overdue = OverdueOrders(deps=deps, term=term)
    return [
        Loop("lease", keeper.run_once, LEASE_TICK_SECONDS, deps.clock, on_turn=on_turn),
        Loop("orders", overdue.run_once, ORDERS_TICK_SECONDS, deps.clock, on_turn=on_turn),
    ]
