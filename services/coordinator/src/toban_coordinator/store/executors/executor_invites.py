"""Invites: tokens with which machines become executors (docs/joining.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invite:
    """An invite without its token. `status`: good, used, ended."""

    id: int
    group: str
    uses: int
    used: int
    created_at: datetime
    created_by: str
    ends_at: datetime
    reason: str
    last_machine: str
    last_used_at: datetime | None
    status: str


async def add(t: Tx, secret_hash: bytes, *, group: str, uses: int, seconds: float, reason: str, actor: str) -> Invite:
    """A new one. Those that are over for a month go."""
    await t.execute(_sql.forget)
    given = {"secret_hash": secret_hash, "group": group, "uses": uses, "seconds": seconds}
    row = await t.fetch_one(_sql.add, {**given, "reason": reason, "actor": actor})
    assert row is not None, "the statement inserts"
    [made] = await invites(t, int(row["id"]))
    return made


async def invites(t: Tx, number: int = 0) -> list[Invite]:
    """The newest first; 0 = all."""
    return [Invite(**row) for row in await t.fetch_all(_sql.invites, {"id": number})]


async def find(t: Tx, secret_hash: bytes) -> tuple[int, str] | None:
    """Number and group of the good invite with this token."""
    row = await t.fetch_one(_sql.find, {"secret_hash": secret_hash})
    return None if row is None else (int(row["id"]), str(row["group"]))


async def take(t: Tx, number: int, machine: str) -> bool:
    """One use; False when it is good no longer."""
    return await t.execute(_sql.take, {"id": number, "machine": machine}) == 1


async def remove(t: Tx, number: int) -> str | None:
    """The group of the one that was removed; None when there is none."""
    row = await t.fetch_one(_sql.remove, {"id": number})
    return None if row is None else str(row["group"])
