"""Builds the order that starts an attempt, and its span: the trace of a run lies below the call that started it, else it is one of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.ports.orders import StartOrder
from toban_coordinator.store.runs import run_traces
from toban_domain.dispatches import end_of_dispatch, next_step
from toban_domain.job import JobSpec
from toban_domain.outcome import AttemptKey
from toban_domain.placement import DueRun
from toban_domain.traceparent import TraceContext, of_run
from toban_observability import tracing
from toban_observability.tracing import Attributes, OpenSpan
from toban_store.pool import Pool
from toban_store.tx import autocommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What an order says of one attempt of a run. `timeout_seconds` 0 = none; `log_day` is PostgreSQL's day of the dispatch.

    `checkpoint` is JSON that an earlier attempt has kept, "" = none; `first_step` the index of the step to begin with.
    `origin` is where the run was started from. `may_wait`: an executor without a free slot may take it. `again`: the run was sent before, for this
    attempt or for another one.
    """

    key: AttemptKey
    version: int
    number: int
    payload: str
    slot: datetime | None
    timeout_seconds: int
    log_day: str
    origin: TraceContext | None = None
    again: bool = False
    checkpoint: str = ""
    first_step: int = 0
    may_wait: bool = False
    priority: int = 0


def attempt_of(
    run: DueRun, token: int, log_day: str, origin: TraceContext | None, *, may_wait: bool = False
) -> Attempt:
    """The attempt that begins with the placement of a due run."""
    return Attempt(
        key=AttemptKey(run.id, token),
        version=run.definition_version,
        number=run.attempt,
        payload=run.payload,
        checkpoint=run.checkpoint or "",
        first_step=run.first_step or 0,
        slot=run.slot,
        timeout_seconds=run.timeout_seconds,
        log_day=log_day,
        origin=origin,
        again=run.attempt > 1 or run.lost_count > 0,
        may_wait=may_wait,
        priority=run.priority,
    )


def start_order(attempt: Attempt, spec: JobSpec, *, cluster: str) -> StartOrder:
    """The order for `attempt` of a run of `spec`. Its span is the way to the executor; the sender ends it."""
    return StartOrder(
        key=attempt.key,
        attempt=attempt.number,
        job_name=spec.name,
        definition_version=attempt.version,
        steps=spec.steps[: end_of_dispatch(spec, attempt.first_step)],
        payload_json=attempt.payload,
        env=spec.env,
        timeout_seconds=attempt.timeout_seconds,
        grace_seconds=spec.cancel.grace_seconds,
        on_lease_loss=spec.lease_loss_action,
        lease_loss_grace_seconds=spec.lease_loss_grace_seconds,
        slot=attempt.slot,
        log_day=attempt.log_day,
        working_dir=spec.working_dir,
        allow_shell=spec.allow_shell,
        logs=spec.logs,
        checkpoint_json=attempt.checkpoint,
        first_step=attempt.first_step,
        result_expected=spec.result_schema is not None and next_step(spec, attempt.first_step) is None,
        secrets=spec.secrets,
        templated=spec.templated,
        may_wait=attempt.may_wait,
        priority=attempt.priority,
        span=_dispatch_span(attempt, spec.name, cluster),
    )


async def trace_origins(pool: Pool, runs: Sequence[int]) -> Mapping[int, TraceContext]:
    """Where these runs were started from; nothing is read while tracing is off."""
    if not tracing.enabled() or not runs:
        return {}
    async with autocommit(pool) as t:
        return await run_traces.kept(t, runs)


def _dispatch_span(attempt: Attempt, job: str, cluster: str) -> OpenSpan | None:
    """None while tracing is off."""
    if not tracing.enabled():
        return None
    root, origin = of_run(cluster, attempt.key.run_id), attempt.origin
    own = root if origin is None and not attempt.again else None
    parent = origin or (root if attempt.again else None)
    attributes: Attributes = {
        "toban.run_id": attempt.key.run_id,
        "toban.token": str(attempt.key.token),
        "toban.job": job,
        "toban.attempt": attempt.number,
    }
    return tracing.begin("dispatch", parent=parent, own=own, attributes=attributes)
