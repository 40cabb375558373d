"""The trace of each run: below the call that started it, else one of its own, which all its attempts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toban_coordinator.store import run_traces
from toban_domain.outcome import AttemptKey
from toban_domain.traceparent import TraceContext, of_run
from toban_observability import tracing
from toban_observability.tracing import Attributes, OpenSpan
from toban_store.pool import Pool
from toban_store.tx import autocommit


async def places_of(pool: Pool, runs: Sequence[int]) -> Mapping[int, TraceContext]:
    """Where these runs were started from; nothing is read while tracing is off."""
    if not tracing.enabled() or not runs:
        return {}
    async with autocommit(pool) as t:
        return await run_traces.kept(t, runs)


def dispatch_span(
    key: AttemptKey, *, cluster: str, job: str, attempt: int, place: TraceContext | None, again: bool = False
) -> OpenSpan | None:
    """The way of an attempt to its executor; its sender ends it. None while tracing is off.

    `place` is where the run was started from. `again`: the run was sent before, for this attempt or for another one.
    """
    if not tracing.enabled():
        return None
    root = of_run(cluster, key.run_id)
    own = root if place is None and not again else None
    parent = place or (root if again else None)
    attributes: Attributes = {
        "toban.run_id": key.run_id,
        "toban.token": str(key.token),
        "toban.job": job,
        "toban.attempt": attempt,
    }
    return tracing.begin("dispatch", parent=parent, own=own, attributes=attributes)
