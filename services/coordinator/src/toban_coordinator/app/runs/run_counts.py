"""How many runs ran in a span of time, of those that a person may see."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from toban_coordinator.app.paging import FIRST_PAGE
from toban_coordinator.app.runs.run_queries import RunQuery, run_filter
from toban_coordinator.app.schedules.coming_load import MOST_USES, Seen
from toban_coordinator.decide.runs.run_counts import BY, Group, Span, groups
from toban_coordinator.decide.schedules.coming_load import Use
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.runs import run_counts, run_lists
from toban_coordinator.store.runs.run_counts import Counting
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool
from toban_store.tx import Row, autocommit

# More are not read, which takes a third of a second: then the later half of the span is counted.
MOST_RUNS = 200_000
# Of these each job and scope is looked up.
MOST_RESTRICTED = MOST_USES
# With a name.
MOST_GROUPS = 24


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The span that was counted, and the groups in it."""

    span: Span
    groups: Sequence[Group]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRuns:
    """Counts."""

    pool: Pool

    async def get(self, query: RunQuery, *, by: str, interval_seconds: int, seen: Seen) -> RunCounts:
        """Of the runs that fit. Raises INVALID_ARGUMENT; NOT_FOUND for an unknown executor."""
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
        restricted = await seen(()) is not None
        part: Span | None = span
        while part is not None:
            what = Counting(
                wanted=replace(wanted, active_from=part.since),
                by=by or BY[0],
                since=part.since,
                until=part.until,
                interval=part.interval,
                most=MOST_RESTRICTED if restricted else MOST_RUNS,
                groups=MOST_GROUPS,
            )
            rows = await (self._seen_rows(what, seen) if restricted else self._rows(what))
            if rows is not None:
                return RunCounts(part, groups(rows, part))
            part = part.later_half()
        return RunCounts(replace(span, since=span.until), ())

    async def _rows(self, what: Counting, allowed: Collection[Use] | None = None) -> list[Row] | None:
        """None when too many runs fit."""
        async with autocommit(self.pool) as t:
            return await run_counts.counts(t, what, allowed)

    async def _seen_rows(self, what: Counting, seen: Seen) -> list[Row] | None:
        async with autocommit(self.pool) as t:
            uses = await run_counts.uses(t, what)
        return None if uses is None else await self._rows(what, await seen(uses))
