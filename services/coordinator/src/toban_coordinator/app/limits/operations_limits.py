"""List, look at and change limits. Not a leader's write: the leader reads them again at once (docs/limits.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toban_coordinator.app.named_objects import not_found
from toban_coordinator.decide.limits.breaker import Breaker, Signal
from toban_coordinator.decide.limits.limits import LimitTable, Usage, job_of
from toban_coordinator.store import object_names
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.limits import breakers, limit_admin, limits
from toban_coordinator.store.limits.limit_admin import Queue, StoredLimit
from toban_coordinator.store.runs import deferred
from toban_domain.concurrency import SCOPES
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.nearest import suggestion
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit, tx

LIMIT_STATES = ("free", "full", "stopped")
MAX_LIMIT = 1_000_000
MAX_NAME = 400
# Keys of the deferred queue that a list shows beside the limits that are stored or defined.
SHOWN_KEYS = 200
_POOL = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_HINT = "use job:NAME, pool:NAME or scope:account/ID"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitState:
    """A limit, how it is used and what waits. `stored` None: it comes from a definition. `value` 0 = there is none; `effective` is what
    its breaker and its health signal leave of it."""

    name: str
    value: int
    effective: int
    usage: Usage
    queue: Queue
    stored: StoredLimit | None
    starts: bool = False
    breaker: Breaker | None = None
    signal: Signal | None = None

    @property
    def state(self) -> str:
        """free | full | stopped."""
        if self.effective < 0:
            return "stopped"
        return "full" if self.effective and self.held + self.usage.reserved >= self.effective else "free"

    @property
    def kind(self) -> str:
        """job | key | pool | rate | group | scope."""
        return self.name.partition(":")[0]

    @property
    def is_idle(self) -> bool:
        """Whether a run waits for it although there is room for the heaviest one."""
        if not self.queue.waiting or self.effective < 0:
            return False
        if self.effective == 0:
            # A limit that is no more lets all go; a pool that is not there lets none.
            return not self.name.startswith("pool:")
        needs = min(self.queue.heaviest, self.effective)
        return self.effective - self.held - self.usage.reserved >= needs

    @property
    def held(self) -> int:
        """Runs, weights or starts that are taken."""
        return self.usage.starts if self.starts else self.usage.held


@dataclass(frozen=True, slots=True)
class LimitDetails:
    """A limit with the runs that hold it and those that wait for it."""

    state: LimitState
    holders: Sequence[Row]
    waiting: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOperations:
    """Reads and changes table `limits`."""

    pool: Pool

    async def list(self) -> list[LimitState]:
        """Limits that operators or definitions set, and those that runs wait for."""
        async with autocommit(self.pool) as t:
            keys = await deferred.keys(t, limit=SHOWN_KEYS)
            table = await limits.table(t, {job_of(key) for key in keys})
            defined = [
                key for name in table.jobs for key in (f"job:{name}", f"rate:{name}") if table.limit_of(key) is not None
            ]
            broken = [name for name, breaker in table.breakers.items() if breaker.state != "closed"]
            return await _states(t, sorted({*table.values, *defined, *keys, *broken}), table)

    async def get(self, name: str) -> LimitDetails:
        """One limit with its runs. Raises NOT_FOUND when there is none of this name, and no run waits for it."""
        async with autocommit(self.pool) as t:
            state = await _state(t, name)
            holders, waiting = await limit_admin.holders(t, name), await limit_admin.waiting(t, name)
            if state.effective == 0 and not holders and not waiting:
                raise await _not_found(t, name)
        return LimitDetails(state, holders, waiting)

    async def state(self, name: str) -> LimitState:
        """One limit and how it is used."""
        async with autocommit(self.pool) as t:
            return await _state(t, name)

    async def set(self, name: str, value: int | None, *, reason: str, actor: str) -> LimitState:
        """None resets it. Raises INVALID_ARGUMENT (name, value, a weight above the pool), JOB_NOT_FOUND, RESOURCE_INVALID_STATE (a pool in use)."""
        async with tx(self.pool) as t:
            await limit_admin.lock(t, name)
            await _check(t, name, value)
            before = (await limit_admin.stored(t, name)).get(name)
            if value is None:
                await limit_admin.remove(t, name)
                await breakers.forget(t, name)
            else:
                await limit_admin.store(t, name, value, reason=audit.clean_reason(reason), actor=actor)
            await audit.note(
                t,
                actor,
                "reset_limit" if value is None else "set_limit",
                f"limit {name}",
                reason,
                before={"value": before.value} if before else None,
                after={"value": value} if value is not None else None,
            )
            state = await _state(t, name)
        _log.info("a limit was changed", limit=name, before=before.value if before else None, after=value, actor=actor)
        return state


async def _state(t: Tx, name: str) -> LimitState:
    return (await _states(t, [name], await limits.table(t, {job_of(name)})))[0]


async def _states(t: Tx, names: Sequence[str], table: LimitTable) -> list[LimitState]:
    needs = {name: table.limit_of(name) for name in names}
    usage = await limits.usage(t, {name: need.window if need else 0 for name, need in needs.items()})
    queues, stored, signals = await limit_admin.queues(t, names), await limit_admin.stored(t), await breakers.signals(t)
    return [
        LimitState(
            name=name,
            value=table.value_of(name),
            effective=need.capacity if need else 0,
            usage=usage.get(name, Usage()),
            queue=queues.get(name, Queue()),
            stored=stored.get(name),
            starts=bool(need and need.window),
            breaker=table.breakers.get(name),
            signal=signals.get(name) if name in table.factors else None,
        )
        for name, need in needs.items()
    ]


async def check_breaker_name(t: Tx, name: str) -> None:
    """Raises INVALID_ARGUMENT for a name that is neither a job's nor a pool's, JOB_NOT_FOUND, NOT_FOUND (pool)."""
    kind, rest = _kind_of(name)
    if kind == "scope":
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name[:60]!r} has no breaker; use job:NAME or pool:NAME")
    if kind == "job" and rest not in await jobs.heads(t, [rest]):
        raise await not_found(t, "job", rest)
    if kind == "pool" and name not in await limit_admin.stored(t, name):
        raise await _not_found(t, name)


def _kind_of(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(":")
    if len(name) > MAX_NAME or "\0" in name or kind not in ("job", "pool", "scope") or not rest:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name[:60]!r} is not a limit that can be set; {_HINT}")
    return kind, rest


async def _check(t: Tx, name: str, value: int | None) -> None:
    kind, rest = _kind_of(name)
    lowest = {"job": -1, "pool": -1, "scope": 1}[kind]
    if value is not None and (not lowest <= value <= MAX_LIMIT or (kind == "pool" and value == 0)):
        allowed = f"{lowest} … {MAX_LIMIT}" + (", not 0" if kind == "pool" else "")
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name} is {value}; use {allowed}")
    if kind == "job" and value is not None and rest not in await jobs.heads(t, [rest]):
        raise await not_found(t, "job", rest)
    if kind == "pool":
        await _check_pool(t, rest, value)
    if kind == "scope" and rest.partition("/")[0] not in SCOPES:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name!r} is not a scope; {_HINT}")


async def _check_pool(t: Tx, pool: str, value: int | None) -> None:
    if not _POOL.fullmatch(pool):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{pool[:60]!r} is not a name of a pool; use a-z, 0-9, '.', '_', '-'"
        )
    users = await limit_admin.users_of_pool(t, pool)
    if not users:
        return
    name, weight = users[0]
    if value is None:
        raise TobanError(
            ErrorCode.RESOURCE_INVALID_STATE,
            f"job {name!r} takes of pool {pool!r}; take it out of its `concurrency.pools` first",
        )
    if 0 < value < weight:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"pool {pool!r} would be {value}, and job {name!r} takes {weight} of it; change that job first, or use -1 to close the pool",
        )


async def _not_found(t: Tx, name: str) -> TobanError:
    known = [*(await limit_admin.stored(t)), *(f"job:{job}" for job in await object_names.names(t, "job"))]
    hint = suggestion(name, known, "see `toban limit list`")
    return TobanError(ErrorCode.NOT_FOUND, f"there is no limit {name[:60]!r}, and no run waits for one; {hint}")


async def check_pools(t: Tx, pools: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """(path, message, hint) of each pool that is not there, or is too small for what a run takes."""
    if not pools:
        return []
    stored = {name: one.value for name, one in (await limit_admin.stored(t)).items() if name.startswith("pool:")}
    found = []
    for pool, weight in pools.items():
        size = stored.get(f"pool:{pool}")
        path = f"spec.concurrency.pools.{pool}"
        if size is None:
            known = [name.removeprefix("pool:") for name in stored]
            hint = suggestion(pool, known, f"make it first: toban limit set pool:{pool} SIZE")
            found.append((path, f"there is no pool {pool!r}", hint))
        elif 0 < size < weight:
            found.append((path, f"takes {weight} of pool {pool!r}, whose size is {size}", f"use at most {size}"))
    return found
