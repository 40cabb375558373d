"""The traces that calls start runs in, kept over the queue; only written and read while tracing is on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toban_domain.traceparent import TraceContext, parse
from toban_store import array_literals, queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


async def keep(t: Tx, ids: Sequence[int], place: TraceContext) -> None:
    """These runs were started from this place."""
    await t.execute(_sql.keep, {"ids": array_literals.numbers(ids), "traceparent": place.header})


async def kept(t: Tx, ids: Sequence[int]) -> Mapping[int, TraceContext]:
    """Where runs were started from; those that no traced call has started are missing."""
    rows = await t.fetch_all(_sql.kept, {"ids": array_literals.numbers(ids)})
    places = {row["run_id"]: parse(row["traceparent"] or "") for row in rows}
    return {run: place for run, place in places.items() if place is not None}
