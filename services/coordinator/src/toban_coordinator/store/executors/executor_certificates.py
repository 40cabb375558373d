"""Certificates that machines got by joining and by renewal (docs/joining.md)."""

from __future__ import annotations

from datetime import datetime

from toban_coordinator.decide.executors.certificate_renewal import MachineCertificate
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


async def hold_alone(t: Tx) -> None:
    """Other renewals wait until the end of the transaction."""
    await t.execute(_sql.hold_alone)


async def find(t: Tx, serial: str) -> tuple[MachineCertificate, datetime] | None:
    """The certificate with this serial number, and the time of PostgreSQL; None when no machine got it by joining or by renewal."""
    row = await t.fetch_one(_sql.find, {"serial": serial})
    if row is None:
        return None
    now = row.pop("now")
    return MachineCertificate(**row), now


async def add(
    t: Tx, serial: str, *, group: str, invite: int | None, machine: str, ends_at: datetime, parent: str | None = None
) -> None:
    """A new one. Those that are over for a month go."""
    await t.execute(_sql.forget)
    given = {"serial": serial, "parent": parent, "group": group, "invite": invite, "machine": machine}
    await t.execute(_sql.add, {**given, "ends_at": ends_at})
