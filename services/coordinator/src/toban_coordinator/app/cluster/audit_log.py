"""The log of operators' actions by pages, and how numbers of runs are stored in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from toban_coordinator.app.paging import FIRST_PAGE, Page, PageRequest, page_of
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.cluster.audit import AuditFilter
from toban_store.pool import Pool
from toban_store.tx import tx

FILTER_SECONDS = 20.0
ANY = AuditFilter()


def run_numbers(runs: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """The target of an action on these runs, and for several of them `runs` with their numbers: `101-105,200`."""
    return (f"run {runs[0]}", {}) if len(runs) == 1 else (f"{len(runs)} runs", {"runs": spans(runs)})


def spans(runs: Sequence[int]) -> str:
    """Numbers in order, those in a row as `101-105`."""
    # Numbers in a row have the same distance from their place.
    found = [[run for _, run in group] for _, group in groupby(enumerate(sorted(runs)), lambda one: one[1] - one[0])]
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in found)


async def list_audit(
    pool: Pool, page: PageRequest = FIRST_PAGE, wanted: AuditFilter = ANY, *, oldest_first: bool = False
) -> Page:
    """A page, newest first unless `oldest_first`. Raises INVALID_ARGUMENT for a page that is none."""
    limit = page.rows
    start = page.below_id if page.cursor or not oldest_first else 0
    async with tx(pool) as t:
        # No index helps most filters: with few hits all rows are read, some hundred thousand a second.
        await t.allow_seconds(FILTER_SECONDS)
        found = await audit.page(t, wanted, start=start, limit=limit + 1, oldest_first=oldest_first)
    return page_of(found, limit, "id")
