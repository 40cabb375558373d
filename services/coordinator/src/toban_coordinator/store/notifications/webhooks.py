"""Table `webhook_targets`: where ends of runs go. URL and secret of a target are in table `secrets`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_coordinator.decide.notifications.webhooks import BREAKER_FAILURES
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which ends of runs: by state, and of which jobs; no jobs and no labels = all."""

    states: Sequence[str]
    jobs: Sequence[str] = ()
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTarget:
    """A target as it is stored. `secret` is the name under which its URL and secret are encrypted; `pending` counts up to 10,000."""

    id: int
    name: str
    origin: str
    form: str
    secret: str
    states: Sequence[str]
    jobs: Sequence[str]
    labels: Mapping[str, str]
    enabled: bool
    failures: int
    failing_since: datetime | None
    open_until: datetime | None
    last_error: str
    version: int
    updated_at: datetime
    updated_by: str
    down: bool
    pending: int
    oldest_pending_at: datetime | None

    @property
    def status(self) -> str:
        """disabled | down | failing | active."""
        if not self.enabled:
            return "disabled"
        if self.down:
            return "down"
        return "failing" if self.failures else "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetValues:
    """Columns to write; None leaves one as it is. `close` resets the count of failures."""

    origin: str | None
    form: str | None
    which: Filter | None
    enabled: bool | None
    close: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Targets by state. `overdue`: seconds for which a delivery has been due and not been tried, of targets that are not down."""

    active: int
    failing: int
    down: int
    disabled: int
    overdue: float


async def targets(t: Tx, name: str = "") -> list[StoredTarget]:
    """All of them, or the one called `name`."""
    return [StoredTarget(**row) for row in await t.fetch_all(_sql.targets, {"name": name, "breaker": BREAKER_FAILURES})]


async def lock(t: Tx, name: str) -> str | None:
    """The name of its secret, with the target locked; None when there is none."""
    row = await t.fetch_one(_sql.lock, {"name": name})
    return None if row is None else str(row["secret"])


async def create(t: Tx, name: str, values: TargetValues, *, secret: str, actor: str) -> bool:
    """False when another transaction has made it."""
    return await t.execute(_sql.create, {**_params(name, values, actor), "secret": secret}) == 1


async def change(t: Tx, name: str, values: TargetValues, *, actor: str) -> bool:
    """False when there is none."""
    return await t.execute(_sql.change, _params(name, values, actor)) == 1


async def remove(t: Tx, name: str) -> str | None:
    """The name of its secret; None when there is none."""
    row = await t.fetch_one(_sql.remove, {"name": name})
    return None if row is None else str(row["secret"])


async def users(t: Tx, name: str) -> list[str]:
    """Jobs that notify it."""
    return [row["name"] for row in await t.fetch_all(_sql.users, {"name": name})]


async def health(t: Tx) -> Health:
    """For metrics."""
    row = await t.fetch_one(_sql.health, {"breaker": BREAKER_FAILURES})
    assert row is not None, "the statement aggregates"
    return Health(**row)


def _params(name: str, values: TargetValues, actor: str) -> dict[str, Any]:
    which = values.which
    return {
        "name": name,
        "origin": values.origin,
        "form": values.form,
        "states": None if which is None else list(which.states),
        "jobs": None if which is None else list(which.jobs),
        "labels": None if which is None else json.dumps(dict(which.labels)),
        "enabled": values.enabled,
        "close": values.close,
        "actor": actor,
    }
