"""Why a run waits, was skipped, or is where it is. Any coordinator reads what the leader would, and asks the leader's decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toban_coordinator.app.limits.limit_gate import LimitGate
from toban_coordinator.decide.limits.limits import Need, Usage, job_of
from toban_coordinator.decide.placement.assign import fresh_seconds
from toban_coordinator.decide.runs.explain_run import (
    LimitCheck,
    RunFacts,
    limit_checks,
    rule_checks,
    sent_reasons,
    waits_for_step,
)
from toban_coordinator.decide.runs.wait_reason import (
    Check,
    LeaderSeen,
    WaitingRun,
    candidate_reason,
    checks,
    first_of,
    waits_for_worker,
)
from toban_coordinator.store.cluster import read_models, settings
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.limits import limit_admin, limits
from toban_coordinator.store.placement import runs_assign
from toban_coordinator.store.runs import deferred, run_steps
from toban_coordinator.store.runs.deferred import QueuePlace
from toban_domain.dispatches import external_step, worker_type
from toban_domain.job import JobSpec, SelectorSpec
from toban_domain.placement import DueRun, ExecutorLoad
from toban_domain.run import RunState
from toban_store.tx import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An executor that is not off. `reason`: why it cannot take the run now, "" when it can."""

    executor: ExecutorLoad
    node_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`reasons` is never empty, the first comes first. Without `place` the run was sent or is over; `holders` are the runs of each limit.
    `at_worker`: its next step is for external workers, so no executor is a candidate."""

    row: Row
    reasons: Sequence[str]
    checks: Sequence[Check] = ()
    limits: Sequence[LimitCheck] = ()
    holders: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    candidates: Sequence[Candidate] = ()
    place: QueuePlace | None = None
    weights: Mapping[tuple[str, str], int] = field(default_factory=dict)
    at_worker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was read of a run that was not sent."""

    facts: RunFacts
    checks: Sequence[Check]
    limits: Sequence[LimitCheck]
    executors: Sequence[ExecutorLoad]
    fresh: float
    weights: Mapping[tuple[str, str], int]


async def why_waiting(t: Tx, run_id: int, events: Sequence[Row]) -> str:
    """One sentence; "" when the run was sent or is over. `events` are those of the run, in order."""
    found = await _find(t, run_id, events)
    return first_of(found.checks) if found is not None else ""


async def explain(t: Tx, row: Row, events: Sequence[Row]) -> Explanation:
    """Everything that decides about a run; `row` and `events` are as they are shown."""
    found = await _find(t, row["id"], events)
    if found is None:
        if waits := await why_at_worker(t, row["id"]):
            return Explanation(row=row, reasons=[waits, *sent_reasons(row, events)[1:]], at_worker=True)
        selector = await _selector(t, row["id"])
        loads = await runs_assign.executor_loads(t)
        leader, fresh = await read_models.leader(t), fresh_seconds(await settings.read(t))
        placed = [(load, candidate_reason(load, loads, selector, leader["server_time"], fresh)) for load in loads]
        holds = await _why_not_canceled(t, row)
        reasons = [*filter(None, [holds]), *sent_reasons(row, events)]
        return Explanation(row=row, reasons=reasons, candidates=await _candidates(t, placed))
    facts = found.facts
    selector = facts.spec.selector if facts.spec else None
    placed = [
        (load, candidate_reason(load, found.executors, selector, facts.now, found.fresh)) for load in found.executors
    ]
    blocking = [check.message for check in found.checks if check.blocks]
    at_worker = bool(_worker_type(facts))
    return Explanation(
        row=row,
        reasons=blocking or [first_of(found.checks)],
        checks=[*found.checks, *await _disabled(t, facts.run)],
        limits=found.limits,
        holders={one.need.key: await limit_admin.holders(t, one.need.key) for one in found.limits},
        candidates=[] if at_worker else await _candidates(t, placed),
        place=await deferred.place_of(t, facts.run),
        weights=found.weights,
        at_worker=at_worker,
    )


async def why_at_worker(t: Tx, run_id: int) -> str:
    """One sentence about a run whose external step is offered or claimed; "" for any other."""
    claim = await external_claims.of_run(t, run_id)
    if claim is None:
        return ""
    return waits_for_worker(
        claim["worker_type"],
        claim["worker"],
        offered_at=claim["offered_at"],
        claimed_at=claim["claimed_at"],
        until=claim["locked_until"],
    )


async def _why_not_canceled(t: Tx, row: Row) -> str:
    """One sentence about a cancel that waits for a step that is not cancelable; "" for any other run."""
    if row["state"] != RunState.CANCEL_REQUESTED:
        return ""
    found = await run_steps.details(t, row["id"])
    return waits_for_step(row["id"], found) if found is not None else ""


async def _disabled(t: Tx, run: DueRun) -> list[Check]:
    head = (await jobs.heads(t, [run.job_name])).get(run.job_name)
    if head is None or head.id != run.definition_id or head.enabled:
        return []
    text = f"job {run.job_name} is disabled{head.disabled_why}: no new runs; this one was made before and starts all the same"
    return [Check("job", text, blocks=False)]


def _worker_type(facts: RunFacts) -> str:
    step = external_step(facts.spec, facts.run.first_step or 0) if facts.spec else None
    return worker_type(step) if step is not None else ""


async def _find(t: Tx, run_id: int, events: Sequence[Row]) -> _Found | None:
    unsent = await runs_assign.unsent_run(t, run_id)
    if unsent is None:
        return None
    run, weight, now = unsent
    current = await settings.read(t)
    facts, gate = await _facts(t, run, weight, now=now, late_seconds=current["skip_late_runs_after_seconds"])
    needed = limit_checks(facts)
    last = next((event for event in reversed(events) if event["type"] != "trace"), None)
    refused = last if last is not None and last["type"] == "refused" else None
    waiting = WaitingRun(
        scheduled_for=run.scheduled_for,
        not_before=run.not_before,
        selector=facts.spec.selector if facts.spec else None,
        refused_at=refused["at"] if refused else None,
        refusal=refused["message"] if refused else "",
        worker_type=_worker_type(facts),
        rules=rule_checks(facts, needed),
    )
    executors, fresh = await runs_assign.executor_loads(t), fresh_seconds(current)
    found = checks(waiting, await _leader(t), executors, now, fresh=fresh)
    return _Found(facts=facts, checks=found, limits=needed, executors=executors, fresh=fresh, weights=gate.weights())


async def _facts(t: Tx, run: DueRun, weight: int, **times: Any) -> tuple[RunFacts, LimitGate]:
    """With the limits and groups as the leader's dispatch reads them."""
    key, gate = (run.definition_id, run.definition_version), LimitGate()
    spec = (await jobs.versions(t, [key])).get(key)
    if not isinstance(spec, JobSpec):
        return RunFacts(run=run, spec=None, weight=weight, **times), gate
    deferring = set() if run.deferred_on is None else {job_of(run.deferred_on)}
    await gate.know(t, {spec.name} | deferring)
    facts = RunFacts(run=run, spec=spec, weight=weight, deferring=await _deferring(t, run, gate), **times)
    found = await gate.admission(t, [run], {key: spec}, facts.now)
    if found is None:
        return facts, gate
    return replace(facts, admission=found[0], groups=found[1]), gate


async def _deferring(t: Tx, run: DueRun, gate: LimitGate) -> tuple[Need, Usage] | None:
    if run.state is not RunState.DEFERRED or run.deferred_on is None:
        return None
    need = gate.table.limit_of(run.deferred_on)
    if need is None:
        return None
    return need, (await limits.usage(t, {need.key: need.window}))[need.key]


async def _leader(t: Tx) -> LeaderSeen:
    leader = await read_models.leader(t)
    skews = {row["worker_id"]: row["clock_skew_seconds"] for row in await read_models.coordinators(t)}
    return LeaderSeen(
        beaten_at=leader["beaten_at"] if leader["epoch"] else None,
        resigned=leader["resigned"],
        settled=leader["settled"],
        worker_id=leader["worker_id"] or 0,
        skew=skews.get(leader["worker_id"]),
    )


async def _selector(t: Tx, run_id: int) -> SelectorSpec | None:
    """Of a run that was sent or is over."""
    key = await read_models.definition_of(t, run_id)
    spec = (await jobs.versions(t, [key])).get(key) if key else None
    return spec.selector if isinstance(spec, JobSpec) else None


async def _candidates(t: Tx, placed: Sequence[tuple[ExecutorLoad, str]]) -> list[Candidate]:
    names = {row["worker_id"]: row["node_id"] for row in await read_models.executors(t, include_off=False)}
    return [
        Candidate(executor=load, node_id=names.get(load.worker_id) or load.instance, reason=reason)
        for load, reason in sorted(placed, key=lambda one: one[0].worker_id)
    ]
