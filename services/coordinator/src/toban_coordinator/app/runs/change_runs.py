"""JobControl.CancelRuns and RerunRuns: what a filter names is cancelled or repeated, run by run, a part in each call.

Each run is changed in a transaction of its own, so a call that breaks off has done a part, and the same call again does the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from toban_coordinator.app.cluster.audit_log import run_numbers, spans
from toban_coordinator.app.paging import Page, PageRequest
from toban_coordinator.app.runs.cancel import CancelRun
from toban_coordinator.app.runs.rerun import RerunRequest, RunRepeats
from toban_coordinator.app.runs.run_queries import RunQuery, run_filter
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.runs import run_lists
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import FAILURES, TERMINAL, RunState
from toban_runtime.clock import Clock
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit

# Of one call: runs that it looks for at a time, and after how many, or how long, it answers with a cursor.
PAGE = 100
PART = 1000
PART_SECONDS = 4.0
# Numbers of skipped runs that an answer names, for each reason.
NAMED = 10
MAX_OPERATION = 100
LIVE = tuple(state.value for state in RunState if state not in TERMINAL)
ENDED = tuple(sorted(state.value for state in TERMINAL))

# Which of some runs the person of the call may see, and whether they may change each.
Rights = Callable[[Sequence[int]], Awaitable[Mapping[int, bool]]]
# Changes one run; the number of a run that it has made, 0 = none. Raises what the single call raises.
Change = Callable[[int], Awaitable[int]]


async def every_right(runs: Sequence[int]) -> Mapping[int, bool]:
    """The rights of a caller who may change any run."""
    return dict.fromkeys(runs, True)


@dataclass(slots=True)
class Skipped:
    """Runs that were left as they are for the same reason: the message of the first, and some of their numbers."""

    message: str
    count: int = 0
    runs: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Changes:
    """What one part did. `next_cursor` "" = this was the last one; `runs` were changed, `made` are new."""

    matched: int = 0
    runs: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    skipped: dict[ErrorCode, Skipped] = field(default_factory=dict)
    next_cursor: str = ""

    @property
    def changed(self) -> int:
        """How many were changed."""
        return len(self.runs)

    def skip(self, run: int, error: TobanError) -> None:
        """Counts a run that cannot be changed."""
        found = self.skipped.setdefault(error.code, Skipped(error.message))
        found.count += 1
        if len(found.runs) < NAMED:
            found.runs.append(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """Which runs. `cursor` is that of the part before; `dry_run` counts them only."""

    query: RunQuery
    actor: str
    cursor: str = ""
    dry_run: bool = False
    reason: str = ""
    rights: Rights = every_right
    raises_priority: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRuns:
    """Cancels and repeats what a filter names."""

    pool: Pool
    cancel_run: CancelRun
    repeats: RunRepeats
    clock: Clock

    async def cancel(self, wanted: ChangeRequest, *, mode: str = "") -> Changes:
        """Cancels them as CancelRun does. Raises INVALID_ARGUMENT for a filter that is none, NOT_FOUND for its executor."""

        async def cancel(run: int) -> int:
            if not await self.cancel_run.cancel(run, reason=wanted.reason, mode=mode, actor=wanted.actor, noted=False):
                message = f"run {run} was asked to stop before"
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
            return 0

        query = wanted.query if wanted.query.states else replace(wanted.query, states=LIVE)
        return await self._change(replace(wanted, query=query), "runs.cancel", cancel, mode=mode)

    async def rerun(
        self, wanted: ChangeRequest, *, operation: str, latest_definition: bool = False, priority: int = 0
    ) -> Changes:
        """Repeats them as RerunRun does, each once within one `operation`. Raises as `cancel`."""
        if not operation and not wanted.dry_run:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, "operation is empty; give each operation a new name, such as a UUID"
            )
        if len(operation) > MAX_OPERATION:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"operation has more than {MAX_OPERATION} characters")

        async def rerun(run: int) -> int:
            request = RerunRequest(
                run_id=run,
                latest_definition=latest_definition,
                priority=priority,
                raises_priority=wanted.raises_priority,
                idempotency_key=f"rerun-{operation}-{run}",
                reason=wanted.reason,
            )
            return (await self.repeats.rerun(request, wanted.actor, noted="")).run_id

        # Who names runs means these, also those that succeeded.
        default = ENDED if wanted.query.run_ids else FAILURES
        query = wanted.query if wanted.query.states else replace(wanted.query, states=default)
        return await self._change(replace(wanted, query=query), "runs.rerun", rerun)

    async def _change(self, wanted: ChangeRequest, action: str, change: Change, *, mode: str = "") -> Changes:
        done, begun, cursor = Changes(), self.clock.monotonic(), wanted.cursor
        try:
            for _ in range(PART // PAGE):
                page = await self._page(wanted.query, cursor)
                await self._change_page(wanted, page, change, done)
                cursor = page.next_cursor
                if not cursor or self.clock.monotonic() - begun > PART_SECONDS:
                    break
        finally:
            # Also of a call that breaks off: what was changed stays changed.
            if done.changed:
                async with autocommit(self.pool) as t:
                    await _note(t, wanted, action, mode, done)
        done.next_cursor = cursor
        return done

    async def _page(self, query: RunQuery, cursor: str) -> Page:
        request = PageRequest(limit=PAGE, cursor=cursor)
        async with autocommit(self.pool) as t:
            found = await run_filter(t, query, request)
            runs = [] if found is None else await run_lists.ids(t, found)
        return Page([{"id": run} for run in runs[:PAGE]], str(runs[PAGE - 1]) if len(runs) > PAGE else "")

    async def _change_page(self, wanted: ChangeRequest, page: Page, change: Change, done: Changes) -> None:
        rights = await wanted.rights([row["id"] for row in page.rows])
        done.matched += len(rights)
        for run, may in rights.items():
            try:
                if not may:
                    message = f"{wanted.actor} may not change run {run}"
                    raise TobanError(ErrorCode.PERMISSION_DENIED, message)
                if wanted.dry_run:
                    continue
                made = await change(run)
            except TobanError as error:
                if error.code in _BROKEN:
                    raise
                done.skip(run, error)
            else:
                done.runs.append(run)
                done.made += [made] if made else []


# Of the server, and of no run.
_BROKEN = (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.INTERNAL)


async def _note(t: Tx, wanted: ChangeRequest, action: str, mode: str, done: Changes) -> None:
    given = {one.name: getattr(wanted.query, one.name) for one in fields(wanted.query)}
    target, runs = run_numbers(done.runs)
    made = {"made": spans(done.made)} if done.made else {}
    await audit.note(
        t,
        wanted.actor,
        action,
        target,
        wanted.reason,
        before={"filter": {name: _plain(value) for name, value in given.items() if value}},
        after={
            "matched": done.matched,
            "changed": done.changed,
            "skipped": {code.value: one.count for code, one in done.skipped.items()},
            **({"mode": mode} if mode else {}),
            **runs,
            **made,
        },
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
