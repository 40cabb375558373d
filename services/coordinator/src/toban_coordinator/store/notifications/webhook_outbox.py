"""Table `webhook_deliveries`: what is to be sent to targets, and what became of it. The statement that ends runs adds rows (`runs_finish.sql`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from toban_coordinator.decide.notifications.webhooks import (
    BREAKER_FAILURES,
    LEASE_SECONDS,
    PARALLEL,
    AfterTry,
    TryResult,
)
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A delivery for one sender. `secret` is the name under which URL and secret of its target are encrypted."""

    id: int
    event_id: UUID
    type: str
    run_id: int | None
    data: Mapping[str, Any] | None
    quiet: Mapping[str, Any] | None
    created_at: datetime
    target: str
    secret: str
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A claimed delivery as the end of its try finds it."""

    id: int
    target_id: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which deliveries a list shows; "" and 0 = all."""

    webhook: str = ""
    state: str = ""
    run_id: int = 0
    id: int = 0


async def claim(t: Tx, *, lease: str, limit: int) -> list[Claimed]:
    """Due deliveries, leased for LEASE_SECONDS."""
    params = {
        "lease": lease,
        "limit": limit,
        "seconds": LEASE_SECONDS,
        "parallel": PARALLEL,
        "breaker": BREAKER_FAILURES,
    }
    return [Claimed(**row) for row in await t.fetch_all(_sql.claim, params)]


async def postpone(t: Tx, lease: str, untils: Mapping[int, datetime]) -> None:
    """Gives claimed deliveries back: they were not tried, and each is due at its time. Until then they hold up no other one of their runs."""
    params = {"lease": lease, "ids": list(untils), "untils": list(untils.values())}
    await t.execute(_sql.postpone, params)


async def drop(t: Tx, lease: str, deliveries: Collection[int], reason: str) -> None:
    """Ends claimed deliveries that cannot be sent any more, through no fault of their targets."""
    await t.execute(_sql.drop, {"lease": lease, "ids": list(deliveries), "reason": reason})


async def any_target(t: Tx) -> bool:
    """Whether a target is enabled."""
    row = await t.fetch_one(_sql.any_target)
    return bool(row and row["found"])


async def held(t: Tx, delivery: int, lease: str) -> Held | None:
    """Locks it; None when the lease is not that of the delivery any more."""
    row = await t.fetch_one(_sql.held, {"id": delivery, "lease": lease})
    return None if row is None else Held(**row)


async def settle(t: Tx, delivery: int, lease: str, result: TryResult, after: AfterTry) -> bool:
    """Ends the lease; False when it has ended before."""
    params = {
        "id": delivery,
        "lease": lease,
        "state": after.state,
        "delay": after.delay_seconds,
        "status": result.status or None,
        "error": result.error,
    }
    return await t.execute(_sql.settle, params) == 1


async def recovered(t: Tx, target: int) -> tuple[str, int]:
    """The target has taken a delivery; its name and how often in a row it had failed before, ("", 0) when it had not."""
    row = await t.fetch_one(_sql.recovered, {"id": target})
    return (row["name"], row["failures"]) if row else ("", 0)


async def failures(t: Tx, target: int) -> tuple[str, int]:
    """Name and failures in a row of a target, which is locked; ("", 0) when it is deleted."""
    row = await t.fetch_one(_sql.failures, {"id": target})
    return (row["name"], row["failures"]) if row else ("", 0)


async def note_failure(t: Tx, target: int, *, count: int, error: str, pause: float) -> None:
    """The target has failed `count` times in a row; nothing goes to it for `pause` seconds, 0 = it goes on."""
    await t.execute(_sql.note_failure, {"id": target, "failures": count, "error": error, "pause": pause})


async def add(t: Tx, target: str, kind: str) -> int | None:
    """An event about no run; None when there is no such target."""
    row = await t.fetch_one(_sql.add, {"target": target, "type": kind})
    return None if row is None else int(row["id"])


async def page(t: Tx, wanted: Wanted, *, below: int, limit: int) -> list[Row]:
    """Deliveries of targets that there are, newest first."""
    params = {
        "webhook": wanted.webhook,
        "state": wanted.state,
        "run_id": wanted.run_id,
        "id": wanted.id,
        "below": below,
        "limit": limit,
    }
    # Planned for these values: which index serves depends on what is given.
    return await t.fetch_all(_sql.page, params, prepare=False)


async def redeliver(t: Tx, target: str, ids: Sequence[int], *, limit: int) -> int:
    """Those with these ids, none = all that failed, at most `limit`; how many will be sent again."""
    return await t.execute(_sql.redeliver, {"target": target, "ids": list(ids), "limit": limit})
