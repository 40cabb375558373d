"""Job definitions: the current one of each name, and every version that a run may refer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_domain.errors import TobanError
from toban_domain.job import JobSpec
from toban_domain.payload import canonical_json
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """What enqueue needs to know of a definition before it looks at the spec."""

    id: int
    version: int
    enabled: bool
    disabled_why: str = ""
    """By whom and why a person disabled it, after the words "is disabled"; "" when no person did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disabled:
    """That a person disabled a definition. `why` is for texts, after the words "is disabled"; `until` None: until a person enables it."""

    at: datetime
    by: str
    reason: str
    why: str
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The current definition of a name. `spec` None: what is stored of it or of its version cannot be read, `broken` says why."""

    id: int
    version: int
    enabled: bool
    spec: JobSpec | None
    spec_hash: str
    broken: str = ""
    disabled: Disabled | None = None

    @property
    def head(self) -> Head:
        """What runs are made by."""
        return Head(self.id, self.version, self.enabled, self.disabled.why if self.disabled else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """What uses a definition: schedules and triggers by name, live runs that are not being cancelled."""

    schedules: Sequence[str] = ()
    triggers: Sequence[str] = ()
    runs: Sequence[int] = ()


async def lock_current(t: Tx, names: Sequence[str]) -> dict[str, Definition]:
    """The definitions of those `names` that exist, locked against other changes."""
    rows = await t.fetch_all(_sql.lock_current, {"names": list(names)})
    # What runs are made from, a row of its own. In a statement after the lock: a joined row would be that of before a wait.
    stored = await versions(t, [(row["id"], row["version"]) for row in rows]) if rows else {}
    return {
        row["name"]: _definition(row, stored.get((row["id"], row["version"]), "a version is missing")) for row in rows
    }


async def heads(t: Tx, names: Sequence[str]) -> dict[str, Head]:
    """Id, version and state of those `names` that exist."""
    rows = await t.fetch_all(_sql.heads, {"names": list(names)})
    return {row["name"]: Head(row["id"], row["version"], row["enabled"], row["disabled_why"]) for row in rows}


async def starters(t: Tx, wanted: Sequence[str]) -> dict[str, list[str]]:
    """The first few schedules and triggers ("schedule nightly") of definitions, by their names."""
    found: dict[str, list[str]] = {}
    for row in await t.fetch_all(_sql.starters, {"names": list(wanted)}) if wanted else []:
        found.setdefault(row["name"], []).append(row["used_by"])
    return found


async def stored_payloads(t: Tx, wanted: Sequence[str]) -> list[Row]:
    """kind, name, definition_id and payload of the schedules and triggers of these names."""
    return await t.fetch_all(_sql.stored_payloads, {"names": list(wanted)})


async def payloads_of(t: Tx, ids: Sequence[int]) -> list[Row]:
    """kind, name, definition_id and payload (None = empty) of the schedules and triggers of these definitions, by kind and name."""
    return await t.fetch_all(_sql.payloads_of, {"ids": list(ids)}) if ids else []


async def versions(t: Tx, keys: Sequence[tuple[int, int]]) -> dict[tuple[int, int], JobSpec | str]:
    """The specs of (definition, version) pairs; versions never change once written. One that cannot be read: why."""
    rows = await t.fetch_all(_sql.versions, {"ids": [k[0] for k in keys], "versions": [k[1] for k in keys]})
    return {(row["definition_id"], row["version"]): _read(row["spec"]) for row in rows}


def _read(stored: Any) -> JobSpec | str:
    try:
        return JobSpec.from_json(stored)
    except (TobanError, LookupError, TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


async def create(t: Tx, spec: JobSpec, spec_hash: str, *, actor: str) -> Head | None:
    """A new definition; None when the name was taken meanwhile."""
    return _head(await t.fetch_one(_sql.create, _written(spec, spec_hash, actor)))


async def update(t: Tx, old: Definition, spec: JobSpec, spec_hash: str, *, actor: str) -> Head | None:
    """The next version of a definition, which stays disabled when a person disabled it; None when it changed meanwhile."""
    parameters = {**_written(spec, spec_hash, actor), "id": old.id, "version": old.version}
    return _head(await t.fetch_one(_sql.update, parameters), old.head.disabled_why)


def _written(spec: JobSpec, spec_hash: str, actor: str) -> Mapping[str, Any]:
    return {
        "name": spec.name,
        "enabled": spec.enabled,
        "spec": canonical_json(spec.to_json()),
        "hash": spec_hash,
        "actor": actor,
    }


def _head(row: Row | None, disabled_why: str = "") -> Head | None:
    return None if row is None else Head(row["id"], row["version"], row["enabled"], disabled_why)


def _definition(row: Row, version: JobSpec | str) -> Definition:
    spec, broken = _read(row["spec"]), ""
    if isinstance(spec, JobSpec) and spec.name != row["name"]:
        spec = f"it is about {spec.name!r}"
    for one in (spec, version):
        broken = broken or (one if isinstance(one, str) else "")
    return Definition(
        id=row["id"],
        version=row["version"],
        enabled=row["enabled"],
        spec=spec if isinstance(spec, JobSpec) and not broken else None,
        spec_hash=row["spec_hash"],
        broken=broken,
        disabled=_disabled(row),
    )


def _disabled(row: Row) -> Disabled | None:
    if row["disabled_at"] is None:
        return None
    return Disabled(
        at=row["disabled_at"],
        by=row["disabled_by"],
        reason=row["disabled_reason"],
        why=row["disabled_why"],
        until=row["disabled_until"],
    )


async def disable(t: Tx, old: Definition, *, reason: str, actor: str, until: datetime | None) -> bool:
    """A locked definition starts nothing until `enable`, which the leader does at `until`. False when it changed meanwhile."""
    parameters = {
        "id": old.id,
        "version": old.version,
        "before": old.disabled.at if old.disabled else None,
        "reason": reason,
        "actor": actor,
        "until": until,
    }
    return await t.execute(_sql.disable, parameters) == 1


async def enable(t: Tx, old: Definition, *, enabled: bool) -> bool:
    """A locked definition that a person disabled is as `enabled` says again. False when it changed meanwhile."""
    return await t.execute(_sql.enable, {"id": old.id, "version": old.version, "enabled": enabled}) == 1


async def users(t: Tx, definition_id: int, name: str, *, most: int) -> Users:
    """What uses a locked definition, at most so many of each kind."""
    row = await t.fetch_one(_sql.users, {"id": definition_id, "name": name, "most": most})
    assert row is not None
    return Users(**{kind: tuple(found) for kind, found in row.items()})


async def delete(t: Tx, old: Definition, *, actor: str) -> bool:
    """Deletes a locked definition: its name is free, and its runs still show it. False when it changed meanwhile."""
    return await t.execute(_sql.delete, {"id": old.id, "version": old.version, "actor": actor}) > 0


async def server_now(t: Tx) -> datetime:
    """PostgreSQL's time at the start of the transaction."""
    row = await t.fetch_one(_sql.server_now)
    assert row is not None
    now: datetime = row["now"]
    return now
