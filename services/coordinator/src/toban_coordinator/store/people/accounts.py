"""Accounts, groups and rules. A change takes `lock` first, since it is checked against all accounts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from toban_domain.access import Effect, Person, Role, Rule, Selector
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


async def lock(t: Tx) -> None:
    """Waits for the changes of others."""
    await t.execute(_sql.lock)


async def people(t: Tx, name: str = "") -> list[Person]:
    """Every account with its rules, or the one called `name`."""
    found: dict[str, Person] = {}
    rules: dict[str, list[Rule]] = {}
    for row in await t.fetch_all(_sql.people, {"name": name}):
        found[row["person"]] = Person(
            name=row["person"], enabled=row["enabled"], signs_in=row["signs_in"], has_password=row["has_password"]
        )
        if row["rule_id"] is not None:
            rules.setdefault(row["person"], []).append(rule_of(row, number=row["rule_id"], origin=row["origin"]))
    return [replace(person, rules=tuple(rules.get(person.name, ()))) for person in found.values()]


def selector_of(row: Mapping[str, Any]) -> Selector:
    """The selector in the columns of a rule or token."""
    return Selector(job=row["job"], labels=row["labels"], scope=row["scope"], scope_id=row["scope_id"])


def selector_columns(selector: Selector) -> dict[str, Any]:
    """The columns of a selector, as parameters."""
    return {
        "job": selector.job,
        "labels": json.dumps(dict(selector.labels)),
        "scope": selector.scope,
        "scope_id": selector.scope_id,
    }


def rule_of(row: Mapping[str, Any], *, number: int, origin: str = "") -> Rule:
    """A rule out of its columns."""
    return Rule(
        id=number, effect=Effect(row["effect"]), role=Role(row["role"]), selector=selector_of(row), origin=origin
    )


async def users_page(t: Tx, *, after: str, limit: int) -> list[Row]:
    """Accounts by name."""
    return await t.fetch_all(_sql.users_page, {"after": after, "limit": limit})


async def add_user(t: Tx, name: str, *, display_name: str, password_hash: str | None, actor: str) -> bool:
    """False: there is one of that name."""
    parameters = {"name": name, "display_name": display_name, "password_hash": password_hash, "actor": actor}
    return await t.execute(_sql.insert_user, parameters) == 1


async def set_enabled(t: Tx, name: str, *, enabled: bool) -> bool:
    """False: it is so already, or there is no such account."""
    return await t.execute(_sql.set_enabled, {"name": name, "enabled": enabled}) == 1


async def set_password(t: Tx, name: str, password_hash: str) -> bool:
    """False: there is no such account."""
    return await t.execute(_sql.set_password, {"name": name, "password_hash": password_hash}) == 1


async def change_password(t: Tx, name: str, *, before: str, password_hash: str) -> bool:
    """False: `before` is not the hash of the account any more, or the account is disabled."""
    parameters = {"name": name, "before": before, "password_hash": password_hash}
    return await t.execute(_sql.change_password, parameters) == 1


async def rehash(t: Tx, name: str, *, before: str, password_hash: str) -> None:
    """The hash with present parameters, unless the password was changed meanwhile."""
    await t.execute(_sql.rehash, {"name": name, "before": before, "password_hash": password_hash})


async def delete_user(t: Tx, name: str) -> bool:
    """False: there is no such account."""
    return await t.execute(_sql.delete_user, {"name": name}) == 1


async def credentials(t: Tx, name: str, *, address: str, known_seconds: float) -> Row | None:
    """Hash, whether it is enabled, and whether it signed in from this address lately; None without such an account."""
    return await t.fetch_one(_sql.credentials, {"name": name, "address": address, "known_seconds": known_seconds})


async def groups(t: Tx) -> list[Row]:
    """Groups by name, with members."""
    return await t.fetch_all(_sql.groups)


async def add_group(t: Tx, name: str, *, actor: str) -> bool:
    """False: there is one of that name."""
    return await t.execute(_sql.insert_group, {"name": name, "actor": actor}) == 1


async def delete_group(t: Tx, name: str) -> bool:
    """False: there is no such group."""
    return await t.execute(_sql.delete_group, {"name": name}) == 1


async def change_member(t: Tx, *, group: str, user: str, joins: bool) -> bool:
    """False: nothing changes, or one of them does not exist."""
    return await t.execute(_sql.join_group if joins else _sql.leave_group, {"group": group, "user": user}) == 1


async def add_rule(
    t: Tx, *, user: str, group: str, effect: Effect, role: Role, selector: Selector, actor: str
) -> int | None:
    """Its id; None: there is no such user or group. Exactly one of them is given."""
    parameters = {"user": user, "group": group, "effect": effect.value, "role": role.value, "actor": actor}
    row = await t.fetch_one(_sql.insert_rule, parameters | selector_columns(selector))
    return None if row is None else int(row["id"])


async def delete_rule(t: Tx, rule_id: int) -> Rule | None:
    """What it was; None: there is no such rule."""
    row = await t.fetch_one(_sql.delete_rule, {"id": rule_id})
    return None if row is None else rule_of(row, number=rule_id, origin=row["origin"])


async def rules(t: Tx, *, user: str = "", group: str = "") -> list[Row]:
    """Rules by id: of a user itself, of a group, or all."""
    return await t.fetch_all(_sql.rules, {"user": user, "group": group})


async def put_link(t: Tx, secret_hash: bytes, *, seconds: float) -> datetime:
    """When the new one-time link ends; earlier ones are void."""
    row = await t.fetch_one(_sql.put_link, {"secret_hash": secret_hash, "seconds": seconds})
    assert row is not None
    found: datetime = row["ends_at"]
    return found


async def take_link(t: Tx, secret_hash: bytes) -> bool:
    """False: it is not the newest one, or has ended, or was used."""
    return await t.execute(_sql.take_link, {"secret_hash": secret_hash}) == 1
