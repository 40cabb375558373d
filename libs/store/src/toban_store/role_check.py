"""What `toban doctor` finds about the PostgreSQL role of a service: shared, too powerful, or without a right that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_domain.finding import Finding
from toban_store import queries
from toban_store.privileges import SERVICES, TABLES
from toban_store.tx import Tx

_sql = queries.load(__name__)
# TRUNCATE is in no service's list. Column privileges count where only columns are granted.
_WRITES = ("INSERT", "UPDATE", "DELETE", "TRUNCATE")
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFacts:
    """One row of `own_role`; `schema` is the one of the service that asks."""

    schema: str
    role: str
    attributes: Sequence[str] = ()
    memberships: Sequence[str] = ()
    owned: Sequence[str] = ()
    other_schema: bool = False
    superuser_owns: bool = False
    lacks: Sequence[str] = ()
    exceeds: Sequence[str] = ()


async def read(t: Tx, *, schema: str) -> RoleFacts:
    """The facts about this session's role, for the service that works with `schema`. Raises StoreError."""
    rights = [
        (name, privilege, privilege in TABLES[name].replace("(", " ").split())
        for name in TABLES
        if name.startswith(f"{schema}.")
        for privilege in ("SELECT", *_WRITES)
    ]
    names, privileges, granted = zip(*rights, strict=True)
    [other] = SERVICES.keys() - {schema}
    row = await t.fetch_one(
        _sql.own_role,
        {
            "schema": schema,
            "other_schema": other,
            "names": list(names),
            "privileges": list(privileges),
            "granted": list(granted),
        },
    )
    assert row is not None, "a session has a role"
    return RoleFacts(schema=schema, **row)


def finding(name: str, facts: RoleFacts) -> Finding:
    """The check `name`: an error when a right is missing, a warning when the role may do more than its service needs."""
    if facts.lacks:
        return Finding(
            name=name,
            subject=facts.role,
            value=f"lacks {_few(facts.lacks)}",
            status="error",
            message=f"the role {facts.role} lacks rights on tables of schema {facts.schema}, so statements fail",
            remedy="run `python -m toban_store.migrate up` as toban_owner or as an administrator; it grants them",
        )
    problems = _excesses(facts)
    if not problems:
        return Finding(name=name, subject=facts.role, value="only the rights of its service")
    return Finding(
        name=name,
        subject=facts.role,
        value=problems[0],
        status="warning",
        message=f"a stolen credential of this service could do more than the service: {'; '.join(problems)}",
        remedy=f"give the service a URL with the role {SERVICES[facts.schema]} (docs/database-roles.md)",
    )


def _excesses(facts: RoleFacts) -> list[str]:
    """What the role may do beyond its service, the worst first."""
    [other] = SERVICES.keys() - {facts.schema}
    owner = bool(facts.owned) or "SUPERUSER" in facts.attributes
    found = [
        ("has " + ", ".join(facts.attributes), bool(facts.attributes)),
        ("is a member of " + ", ".join(facts.memberships), bool(facts.memberships)),
        ("may act as the owner of schema " + ", ".join(facts.owned), bool(facts.owned)),
        (f"is shared with another service: it may also use schema {other}", facts.other_schema),
        ("has rights that its service does not need: " + _few(facts.exceeds), bool(facts.exceeds) and not owner),
        (f"schema {facts.schema} belongs to a superuser, as whom its functions run", facts.superuser_owns),
    ]
    return [text for text, holds in found if holds]


def _few(rights: Sequence[str]) -> str:
    more = len(rights) - _NAMED
    return ", ".join(rights[:_NAMED]) + (f" and {more} more" if more > 0 else "")
