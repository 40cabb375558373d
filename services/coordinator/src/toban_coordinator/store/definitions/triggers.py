"""Triggers of events: edits, and which of them wait for a type of event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_domain.event import DueTrigger, TriggerSpec
from toban_domain.payload import canonical_json
from toban_domain.redacted import masked_payload_of
from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrigger:
    """A trigger as stored and locked; `spec` is its JSON as it stands, readable or not."""

    id: int
    version: int
    spec_hash: str
    definition_id: int
    spec: Any
    # What its job hides.
    redact: Sequence[str]


async def lock_named(t: Tx, names: Sequence[str]) -> dict[str, StoredTrigger]:
    """Those of `names` that exist, locked."""
    rows = await t.fetch_all(_sql.lock_named, {"names": list(names)}) if names else []
    return {row.pop("name"): StoredTrigger(**row) for row in rows}


async def create(t: Tx, spec: TriggerSpec, spec_hash: str, *, definition_id: int, actor: str) -> int | None:
    """A new trigger at version 1; None when the name was taken meanwhile."""
    row = await t.fetch_one(_sql.create, _written(spec, spec_hash, definition_id, actor))
    return None if row is None else int(row["version"])


async def update(
    t: Tx, old: StoredTrigger, spec: TriggerSpec, spec_hash: str, *, definition_id: int, actor: str
) -> int | None:
    """The next version of a locked trigger; None when it changed meanwhile."""
    written = _written(spec, spec_hash, definition_id, actor)
    row = await t.fetch_one(_sql.update, {**written, "id": old.id, "version": old.version})
    return None if row is None else int(row["version"])


async def delete(t: Tx, name: str) -> Mapping[str, Any] | None:
    """Takes a trigger away and answers what it said, without values that its job hides; None when there is none of this name."""
    row = await t.fetch_one(_sql.delete, {"name": name})
    return None if row is None else masked_payload_of(row["spec"], row["redact"])


async def count_of_types(t: Tx, types: Sequence[str], *, without: Sequence[str]) -> dict[str, int]:
    """How many triggers, other than those named, wait for each of these types."""
    rows = await t.fetch_all(_sql.count_of_type, {"types": list(types), "names": list(without)})
    return {row["event_type"]: row["triggers"] for row in rows}


async def of_types(t: Tx, types: Sequence[str]) -> list[DueTrigger]:
    """The enabled triggers of these types by name; one whose spec cannot be read is `broken`, so that it stops no other trigger."""
    return [_due(row) for row in await t.fetch_all(_sql.of_types, {"types": list(types)})] if types else []


async def note_errors(t: FencedTx, errors: Mapping[tuple[int, int], str]) -> int:
    """Keeps the last error of triggers by (id, version); "" clears it. Those that are being edited are left out."""
    parameters = {
        "ids": [trigger for trigger, _ in errors],
        "versions": [version for _, version in errors],
        "errors": list(errors.values()),
    }
    return await t.execute(_sql.note_errors, parameters)


async def page(t: Tx, *, after: str = "", event_type: str = "", only: str = "", job: str = "", limit: int) -> list[Row]:
    """Triggers by name, of one type or of all, that start one job or any, or the one called `only`."""
    parameters = {"after": after, "event_type": event_type, "only": only, "job": job, "limit": limit}
    return await t.fetch_all(_sql.page, parameters)


def _written(spec: TriggerSpec, spec_hash: str, definition_id: int, actor: str) -> Mapping[str, Any]:
    return {
        "name": spec.name,
        "event_type": spec.event_type,
        "run_end": spec.on_run_end is not None,
        "definition_id": definition_id,
        "enabled": spec.enabled,
        "spec": canonical_json(spec.to_json()),
        "hash": spec_hash,
        "actor": actor,
    }


def _due(row: Row) -> DueTrigger:
    spec: TriggerSpec | None = None
    broken = ""
    try:
        spec = TriggerSpec.from_json(row["spec"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        broken = f"the stored trigger cannot be read ({type(error).__name__}: {error}); apply it again"
    return DueTrigger(**{**row, "spec": spec}, broken=broken)
