"""Table `secrets`: encrypted values. Only `app.secret_values` and `rotate` of `app.operations_secrets` read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.ports.secrets import Sealed
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRow:
    """An encrypted value and the jobs that may use it; none = all."""

    name: str
    sealed: Sealed
    jobs: tuple[str, ...]

    def allows(self, job: str) -> bool:
        """Whether that job may use it."""
        return not self.jobs or job in self.jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A secret without its value."""

    name: str
    key_id: str
    jobs: Sequence[str]
    used_by: Sequence[str]
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str
    last_used_at: datetime | None
    """When an order had its value last, to the minute."""


async def find(t: Tx, names: Iterable[str]) -> dict[str, SealedRow]:
    """Those of these names that there are."""
    rows = await t.fetch_all(_sql.find, {"names": sorted(set(names))})
    return {row["name"]: _sealed(row) for row in rows}


async def use(t: Tx, pairs: Iterable[tuple[str, str]]) -> dict[str, SealedRow]:
    """As `find`, of (name, job) for orders, which are a use of those that the job may have."""
    wanted = sorted(set(pairs))
    rows = await t.fetch_all(_sql.use, {"names": [name for name, _ in wanted], "jobs": [job for _, job in wanted]})
    return {row["name"]: _sealed(row) for row in rows}


async def stored(t: Tx, name: str = "") -> list[StoredSecret]:
    """All of them, or the one called `name`."""
    return [StoredSecret(**row) for row in await t.fetch_all(_sql.stored, {"name": name})]


async def key_ids(t: Tx) -> dict[str, int]:
    """How many secrets each key encrypts."""
    return {row["key_id"]: row["secrets"] for row in await t.fetch_all(_sql.key_ids)}


async def store(t: Tx, name: str, sealed: Sealed, *, jobs: Sequence[str] | None, actor: str) -> None:
    """Makes a secret or replaces its value. `jobs` None leaves those that may use it."""
    params = {**_params(name, sealed), "jobs": None if jobs is None else list(jobs), "actor": actor}
    await t.execute(_sql.store, params)


async def lock_with_other_key(t: Tx, key_id: str) -> list[SealedRow]:
    """What is not encrypted with this key, locked until the transaction ends."""
    return [_sealed(row) for row in await t.fetch_all(_sql.with_other_key, {"key_id": key_id})]


async def reseal(t: Tx, row: SealedRow, sealed: Sealed) -> bool:
    """The same value under another key; False when the row has changed."""
    changed = await t.execute(_sql.reseal, {**_params(row.name, sealed), "old_key_id": row.sealed.key_id})
    return changed == 1


async def forget_job(t: Tx, name: str, definition_id: int) -> None:
    """Takes a deleted job's permissions from its name, which another job may take: they stay with what it is called from now on."""
    await t.execute(_sql.forget_job, {"name": name, "deleted": f"deleted/{definition_id}"})


async def remove(t: Tx, name: str) -> bool:
    """False when there is none."""
    return await t.execute(_sql.remove, {"name": name}) == 1


def _params(name: str, sealed: Sealed) -> dict[str, object]:
    return {"name": name, "key_id": sealed.key_id, "nonce": sealed.nonce, "ciphertext": sealed.ciphertext}


def _sealed(row: Row) -> SealedRow:
    sealed = Sealed(key_id=row["key_id"], nonce=bytes(row["nonce"]), ciphertext=bytes(row["ciphertext"]))
    return SealedRow(name=row["name"], sealed=sealed, jobs=tuple(row["jobs"]))
