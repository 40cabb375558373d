"""Table `hooks`: incoming webhooks, and which event a message of theirs has become."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_coordinator.decide.notifications.hooks import HookMapping
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHook:
    """A hook as it is stored. `secret` is the name under which its secrets are encrypted, `secrets` their number."""

    id: int
    name: str
    kind: str
    secret: str
    secrets: int
    event_type: str
    type_from: str
    events: Mapping[str, str]
    fields: Sequence[str]
    enabled: bool
    rate_per_minute: int
    last_event_at: datetime | None
    version: int
    updated_at: datetime
    updated_by: str

    @property
    def mapping(self) -> HookMapping:
        """Which event a message becomes."""
        return HookMapping(
            event_type=self.event_type, type_from=self.type_from, events=self.events, fields=tuple(self.fields)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HookValues:
    """What is written; what is None stays. `secrets` is how many are valid."""

    mapping: HookMapping | None = None
    enabled: bool | None = None
    rate: int | None = None
    secrets: int | None = None


async def hooks(t: Tx, name: str = "") -> list[StoredHook]:
    """All of them, or the one called `name`."""
    return [StoredHook(**row) for row in await t.fetch_all(_sql.hooks, {"name": name})]


async def lock(t: Tx, name: str) -> bool:
    """Locks the hook for a change; False when there is none."""
    return await t.fetch_one(_sql.lock, {"name": name}) is not None


async def create(t: Tx, name: str, values: HookValues, *, kind: str, secret: str, actor: str) -> bool:
    """False when another transaction has made it."""
    return await t.execute(_sql.create, {**_params(name, values, actor), "kind": kind, "secret": secret}) == 1


async def change(t: Tx, name: str, values: HookValues, *, actor: str) -> bool:
    """False when there is none."""
    return await t.execute(_sql.change, _params(name, values, actor)) == 1


async def remove(t: Tx, name: str) -> str | None:
    """The name of its secret; None when there is none."""
    row = await t.fetch_one(_sql.remove, {"name": name})
    return None if row is None else str(row["secret"])


async def lock_version(t: Tx, hook: StoredHook) -> bool:
    """Locks the hook until the transaction ends; False when it has changed or is gone."""
    return await t.fetch_one(_sql.lock_version, {"id": hook.id, "version": hook.version}) is not None


async def event_of(t: Tx, event_type: str, key: str) -> int | None:
    """The event that has this key."""
    row = await t.fetch_one(_sql.event_of, {"event_type": event_type, "key": key})
    assert row is not None, "the statement has one row"
    return None if row["id"] is None else int(row["id"])


async def take(t: Tx, hook: StoredHook) -> bool:
    """Counts a message that becomes an event; False when the rate of the hook allows none now."""
    return await t.execute(_sql.take, {"id": hook.id}) == 1


def _params(name: str, values: HookValues, actor: str) -> dict[str, Any]:
    mapping = values.mapping
    return {
        "name": name,
        "event_type": None if mapping is None else mapping.event_type,
        "type_from": None if mapping is None else mapping.type_from,
        "events": None if mapping is None else json.dumps(dict(mapping.events)),
        "fields": None if mapping is None else list(mapping.fields),
        "enabled": values.enabled,
        "rate": values.rate,
        "secrets": values.secrets,
        "actor": actor,
    }
