"""The log of operators' actions by pages, and how the reason of an action is stored."""

from __future__ import annotations

from toban_coordinator.app.paging import FIRST_PAGE, Page, PageRequest, page_of
from toban_coordinator.store import audit
from toban_store.pool import Pool
from toban_store.tx import autocommit

MAX_REASON = 1000


def clean_reason(text: str) -> str:
    """The reason that an operator gave, as PostgreSQL can store it."""
    return text.replace("\0", "�").strip()[:MAX_REASON]


async def list_audit(pool: Pool, page: PageRequest = FIRST_PAGE) -> Page:
    """A page, newest first. Raises INVALID_ARGUMENT for a page that is none."""
    limit, start = page.rows, page.below_id
    async with autocommit(pool) as t:
        found = await audit.page(t, below=start, limit=limit + 1)
    return page_of(found, limit, "id")
