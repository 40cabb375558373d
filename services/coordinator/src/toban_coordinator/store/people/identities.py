"""Who accounts are at an OpenID provider, what its groups give them, and the nonces of sign-ins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from toban_coordinator.decide.people.oidc import Identity
from toban_domain.oidc import Grants
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


async def nonce_key(t: Tx) -> tuple[bytes, datetime]:
    """What nonces are signed with, and PostgreSQL's time."""
    row = await t.fetch_one(_sql.nonce_key)
    assert row is not None, "a migration makes it"
    return bytes(row["key"]), row["server_time"]


async def use_nonce(t: Tx, nonce_hash: bytes, *, ends_at: datetime) -> bool:
    """False: it was used before."""
    await t.execute(_sql.forget_nonces)
    return await t.execute(_sql.use_nonce, {"nonce_hash": nonce_hash, "ends_at": ends_at}) == 1


async def account_of(t: Tx, identity: Identity) -> Row | None:
    """Name of the account, and whether it is enabled; None: the subject is not linked."""
    return await t.fetch_one(_sql.account_of, _of(identity))


async def name_taken(t: Tx, name: str) -> bool:
    """Whether there is an account of that name."""
    row = await t.fetch_one(_sql.name_taken, {"name": name})
    return bool(row and row["taken"])


async def link(t: Tx, identity: Identity, user: str, *, actor: str) -> bool:
    """False: the subject is an account already, or the account a subject of this issuer, or there is no such account."""
    if await t.execute(_sql.link, {**_of(identity), "user": user, "actor": actor}) != 1:
        return False
    await t.execute(_sql.forget_unlinked, _of(identity))
    return True


async def unlink(t: Tx, user: str, *, issuer: str, actor: str) -> str | None:
    """The subject that the account was, which gets no new account by itself; None: it was none of this issuer."""
    row = await t.fetch_one(_sql.unlink, {"user": user, "issuer": issuer})
    if row is None:
        return None
    identity = Identity(issuer=issuer, subject=row["subject"])
    await t.execute(_sql.mark_unlinked, {**_of(identity), "user": user, "actor": actor})
    return identity.subject


async def unlinked_from(t: Tx, identity: Identity) -> str | None:
    """The account that an administrator unlinked the subject from; None: it is linked, or never was."""
    row = await t.fetch_one(_sql.unlinked, _of(identity))
    return None if row is None else str(row["user_name"])


async def identities(t: Tx, users: Sequence[str]) -> list[Row]:
    """Of some accounts, by name."""
    return await t.fetch_all(_sql.identities, {"users": list(users)})


async def linked(t: Tx, issuer: str) -> frozenset[str]:
    """Enabled accounts that signed in with an issuer, since they were linked."""
    return frozenset(row["name"] for row in await t.fetch_all(_sql.linked, {"issuer": issuer}))


async def replace_grants(t: Tx, user: str, grants: Grants, *, actor: str) -> Row | None:
    """Gives the account exactly this from its provider; what it had before."""
    before = await t.fetch_one(_sql.roles, {"user": user})
    roles, groups = sorted(role.value for role in grants.roles), sorted(grants.groups)
    await t.execute(_sql.drop_roles, {"user": user, "roles": roles})
    await t.execute(_sql.add_roles, {"user": user, "roles": roles, "actor": actor})
    await t.execute(_sql.leave_groups, {"user": user, "groups": groups})
    if groups:
        await t.execute(_sql.make_groups, {"groups": groups, "actor": actor})
        await t.execute(_sql.join_groups, {"user": user, "groups": groups})
    return before


async def add_session(
    t: Tx, identity: Identity, secret_hash: bytes, *, address: str, user_agent: str, lasts: timedelta
) -> datetime | None:
    """When the session ends; None: the subject is no enabled account."""
    await t.execute(_sql.touch, _of(identity))
    parameters = {
        **_of(identity),
        "secret_hash": secret_hash,
        "address": address,
        "user_agent": user_agent,
        "seconds": lasts.total_seconds(),
    }
    row = await t.fetch_one(_sql.insert_session, parameters)
    return None if row is None else row["ends_at"]


def _of(identity: Identity) -> dict[str, str]:
    return {"issuer": identity.issuer, "subject": identity.subject}
