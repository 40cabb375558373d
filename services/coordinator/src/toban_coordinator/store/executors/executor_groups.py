"""Groups of executors, and the group that each instance belongs to (docs/executor-groups.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_domain.executor_group import ExecutorGroup
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group with how many executors that are not off, and how many instances, it has."""

    rules: ExecutorGroup
    version: int
    updated_at: datetime
    updated_by: str
    executors: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An executor that is not off, with its labels."""

    incarnation: str
    executor_group: str
    labels: Mapping[str, str]


async def hold(t: Tx) -> None:
    """Groups do not change until the end of the transaction."""
    await t.execute(_sql.hold)


async def hold_alone(t: Tx) -> None:
    """Other changes of groups, and registrations, wait until the end of the transaction."""
    await t.execute(_sql.hold_alone)


async def groups(t: Tx, name: str = "") -> dict[str, StoredGroup]:
    """By name; only the one called `name` when it is given."""
    found = {}
    for row in await t.fetch_all(_sql.groups, {"name": name}):
        rules = ExecutorGroup(
            name=row.pop("name"),
            labels=row.pop("labels"),
            claims=frozenset(row.pop("claims")),
            job_labels=row.pop("job_labels"),
        )
        found[rules.name] = StoredGroup(rules=rules, **row)
    return found


async def own_instance(t: Tx, instance: str, group: str) -> str:
    """The group of an instance; it is `group` from now on when the instance is new."""
    row = await t.fetch_one(_sql.own_instance, {"instance": instance, "group": group})
    assert row is not None, "the statement inserts or updates"
    return str(row["executor_group"])


async def make(t: Tx, rules: ExecutorGroup, *, actor: str) -> bool:
    """False when the group is there already."""
    return await t.execute(_sql.make, _params(rules, actor)) == 1


async def change(t: Tx, rules: ExecutorGroup, *, actor: str) -> bool:
    """False when there is no such group."""
    return await t.execute(_sql.change, _params(rules, actor)) == 1


async def remove(t: Tx, name: str) -> bool:
    """Also forgets its instances. False when there is no such group."""
    await t.execute(_sql.forget_instances, {"name": name})
    return await t.execute(_sql.remove, {"name": name}) == 1


async def running(t: Tx) -> list[Labelled]:
    """Executors that are not off; their rows stay locked."""
    return [Labelled(**row) for row in await t.fetch_all(_sql.running)]


async def relabel(t: Tx, incarnation: str, labels: Mapping[str, str]) -> None:
    """Other labels for an executor; nothing happens to one that is off."""
    await t.execute(_sql.relabel, {"incarnation": incarnation, "labels": json.dumps(dict(labels))})


async def unmovable(t: Tx, instances: Sequence[str]) -> dict[str, bool]:
    """Of these instances those that cannot pass to another group: False for one that is not known, True for one whose executor is not off."""
    return {row["instance"]: row["known"] for row in await t.fetch_all(_sql.unmovable, {"instances": list(instances)})}


async def move(t: Tx, instances: Sequence[str], name: str) -> None:
    """These instances belong to the group called `name`."""
    await t.execute(_sql.move, {"instances": list(instances), "name": name})


def _params(rules: ExecutorGroup, actor: str) -> dict[str, object]:
    return {
        "name": rules.name,
        "labels": json.dumps(dict(rules.labels)),
        "claims": sorted(rules.claims),
        "job_labels": json.dumps(dict(rules.job_labels)),
        "actor": actor,
    }
