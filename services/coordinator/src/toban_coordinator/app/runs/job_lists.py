"""A page of jobs: which ones, in which order, and their newest runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.app.paging import PageRequest
from toban_coordinator.store.definitions import job_lists
from toban_coordinator.store.definitions.job_lists import JobFilter
from toban_domain.errors import ErrorCode, TobanError
from toban_store.tx import Tx

MAX_HISTORY = 20
SORTS = ("", "name", "next_run")
NEVER = "infinity"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs are listed; empty fields mean any. `label` is `key=value`; `history` is how many runs of each job are read."""

    name: str = ""
    label: str = ""
    disabled: bool = False
    failing: bool = False
    sort: str = ""
    history: int = 0

    @property
    def tells_of_runs(self) -> bool:
        """Whether the choice or the order of the jobs depends on their runs or schedules."""
        return self.failing or self.sort == "next_run"


EVERY_JOB = JobQuery()


async def names_of_page(t: Tx, query: JobQuery, page: PageRequest) -> tuple[list[str], str]:
    """The names of a page in their order, and the next cursor. Raises INVALID_ARGUMENT."""
    wanted = await _filter(t, query)
    limit = page.rows
    if wanted is None:
        return [], ""
    if query.sort != "next_run":
        names = await job_lists.by_name(t, wanted, after=page.cursor, limit=limit + 1)
        return names[:limit], names[limit - 1] if len(names) > limit else ""
    after_at, after = _cursor(page.cursor)
    found = await job_lists.by_next_run(t, wanted, after_at=after_at, after=after, limit=limit + 1)
    names = [row["name"] for row in found[:limit]]
    if len(found) <= limit:
        return names, ""
    at = found[limit - 1]["next_run_at"]
    return names, f"{at.isoformat() if at else NEVER} {names[-1]}"


async def _filter(t: Tx, query: JobQuery) -> JobFilter | None:
    """None when no job can match."""
    if query.sort not in SORTS:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"there is no order {query.sort!r}; use name or next_run")
    if not 0 <= query.history <= MAX_HISTORY:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"history is {query.history}; use 0 to {MAX_HISTORY}")
    key, equals, value = query.label.replace("\0", "").partition("=")
    if query.label and not (key and equals):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"label {query.label!r} is no label; write key=value")
    names: Sequence[str] = await job_lists.failing(t) if query.failing else ()
    if query.failing and not names:
        return None
    labels = {key: value} if key else {}
    return JobFilter(part=query.name.replace("\0", ""), labels=labels, disabled=query.disabled, names=names)


def _cursor(cursor: str) -> tuple[str, str]:
    """The time and the name after which a page by next run begins. Raises INVALID_ARGUMENT."""
    if not cursor:
        return "-infinity", ""
    at, _, name = cursor.partition(" ")
    try:
        if at != NEVER and datetime.fromisoformat(at).tzinfo is None:
            raise ValueError
    except ValueError:
        message = f"page.cursor {cursor[:40]!r} is not from an earlier page in the order next_run"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None
    return at, name
