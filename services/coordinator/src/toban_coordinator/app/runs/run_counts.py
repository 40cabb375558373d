"""How many runs ran in a span of time, of those that a person may see."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from toban_coordinator.app.paging import FIRST_PAGE
from toban_coordinator.app.runs.change_runs import Rights
from toban_coordinator.app.runs.run_queries import RunQuery, run_filter
from toban_coordinator.decide.runs.run_counts import BY, Group, Span, groups
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.runs import run_counts, run_lists
from toban_coordinator.store.runs.run_counts import Counting, JobScope
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool
from toban_store.tx import Row, autocommit

# More are not read, which takes a third of a second: then the later half of the span is counted.
MOST_RUNS = 200_000
# Of these each job and scope is looked up, so many at a time.
MOST_RESTRICTED, SCOPES_AT_ONCE = 20_000, 500


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The span that was counted, and the groups in it."""

    span: Span
    groups: Sequence[Group]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRuns:
    """Works from any coordinator."""

    pool: Pool

    async def get(self, query: RunQuery, *, by: str, interval_seconds: int, rights: Rights | None) -> RunCounts:
        """Of the runs that fit. `rights`: which runs a person may see whose rules leave some out; None = all.

        Raises INVALID_ARGUMENT; NOT_FOUND for an unknown executor.
        """
        if by not in ("", *BY):
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"by is {by!r}; use {' or '.join(BY)}")
        async with autocommit(self.pool) as t:
            now = await jobs.server_now(t)
            span = Span.of(query.active_from, query.active_until, seconds=interval_seconds, now=now)
            wanted = await run_filter(t, query, FIRST_PAGE)
            made_before = span.until + run_lists.COMMIT_WITHIN
            if wanted is not None and made_before < now:
                below = await run_lists.first_id_since(t, made_before)
                wanted = replace(wanted, below=min(wanted.below, below))
        if wanted is None:
            return RunCounts(span, ())
        part: Span | None = span
        while part is not None:
            most = MOST_RUNS if rights is None else MOST_RESTRICTED
            what = Counting(wanted=wanted, by=by or BY[0], span=part, most=most)
            rows = await (self._rows(what) if rights is None else self._seen_rows(what, rights))
            if rows is not None:
                return RunCounts(part, groups(rows, part))
            part = (await self._kept(part) if part is span else part).later_half()
        return RunCounts(replace(span, since=span.until), ())

    async def _kept(self, span: Span) -> Span:
        """Without the time before all runs: the halves of that would be many."""
        async with autocommit(self.pool) as t:
            oldest = await run_counts.oldest(t)
        return span if oldest is None or oldest <= span.since else replace(span, since=min(oldest, span.until))

    async def _rows(self, what: Counting, allowed: Collection[JobScope] | None = None) -> list[Row] | None:
        """None when too many runs fit."""
        async with autocommit(self.pool) as t:
            return await run_counts.counts(t, what, allowed)

    async def _seen_rows(self, what: Counting, rights: Rights) -> list[Row] | None:
        async with autocommit(self.pool) as t:
            scopes = await run_counts.job_scopes(t, what)
        if scopes is None:
            return None
        seen: set[int] = set()
        for first in range(0, len(scopes), SCOPES_AT_ONCE):
            seen.update(await rights([one.run for one in scopes[first : first + SCOPES_AT_ONCE]]))
        return await self._rows(what, [one for one in scopes if one.run in seen])
