"""Accounts, groups and rules: each change is checked against all accounts, in its own transaction, in the audit log."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from toban_coordinator.app.paging import FIRST_PAGE, Page, PageRequest, page_of
from toban_coordinator.app.people.passwords import Passwords, check_password
from toban_coordinator.decide.people.oidc import LONGEST_SUBJECT, Identity
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.definitions import targets
from toban_coordinator.store.people import accounts, identities, sessions
from toban_domain.access import (
    Action,
    Effect,
    Person,
    Role,
    Selector,
    Verdict,
    can_administer,
    check_change,
    may,
)
from toban_domain.concurrency import SCOPES
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.oidc import Grants
from toban_observability.logs import get_logger
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit, tx

_log = get_logger(__name__)
LINK_SECONDS = 3600.0
SECRET_BYTES = 32
MAX_ISSUER = 500
_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRule:
    """A rule to add, of a user or of a group: exactly one of them."""

    user: str = ""
    group: str = ""
    effect: Effect
    role: Role
    selector: Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What administrators do. `actor` is the person or service that asks."""

    pool: Pool
    passwords: Passwords
    ids: IdSource

    async def has_administrator(self) -> bool:
        """Whether a person can sign in to an enabled account and administer; until then only the one-time link is good for anything."""
        async with autocommit(self.pool) as t:
            return any(map(can_administer, await accounts.people(t)))

    async def bootstrap_link(self, actor: str) -> tuple[str, datetime]:
        """A secret for the first administrator, shown once, and its end. Raises RESOURCE_INVALID_STATE when there is an administrator."""
        secret = self.ids.token_hex(SECRET_BYTES)
        async with tx(self.pool) as t:
            await accounts.lock(t)
            _check_first(await accounts.people(t))
            ends_at = await accounts.put_link(t, hash_secret(secret), seconds=LINK_SECONDS)
            await audit.note(t, actor, "bootstrap_link", "accounts")
        _log.info("a one-time link for the first administrator was made", actor=actor, ends_at=ends_at.isoformat())
        return secret, ends_at

    async def redeem_link(self, secret: str, *, user: str, password: str, address: str) -> None:
        """The first administrator. Raises UNAUTHENTICATED for a link that is not good, INVALID_ARGUMENT, ALREADY_EXISTS."""
        _check_name("user", user)
        check_password(password, user)
        async with autocommit(self.pool) as t:
            _check_first(await accounts.people(t))
        hashed = await self.passwords.hash(password)
        async with tx(self.pool) as t:
            await accounts.lock(t)
            _check_first(await accounts.people(t))
            if not await accounts.take_link(t, hash_secret(secret)):
                message = "the one-time link is not good: used, replaced or older than an hour; make another with `toban user bootstrap`"
                raise TobanError(ErrorCode.UNAUTHENTICATED, message)
            await _insert_user(t, user, display_name="", password_hash=hashed, actor="bootstrap link")
            rule = await accounts.add_rule(
                t,
                user=user,
                group="",
                effect=Effect.ALLOW,
                role=Role.ADMIN,
                selector=Selector(),
                actor="bootstrap link",
            )
            after = {"rule": rule, "role": "admin", "address": address}
            await audit.note(t, "bootstrap link", "first_admin", f"user {user}", after=after)
        _log.info("the first administrator was made", user=user)

    async def list_users(self, page: PageRequest = FIRST_PAGE) -> tuple[Page, Mapping[str, Person], list[Row]]:
        """Accounts by name, what each may do, and who they are at OpenID providers."""
        limit = page.rows
        async with autocommit(self.pool) as t:
            found = page_of(await accounts.users_page(t, after=page.cursor, limit=limit + 1), limit, "name")
            people = {person.name: person for person in await accounts.people(t)}
            linked = await identities.identities(t, [row["name"] for row in found.rows])
        return found, people, linked

    async def add_user(self, name: str, *, display_name: str, password: str, actor: str, reason: str = "") -> None:
        """A new account without rights; `password` "" = it cannot sign in with one. Raises INVALID_ARGUMENT, ALREADY_EXISTS."""
        _check_name("user", name)
        hashed = await self._hashed(password, name) if password else None
        async with self._change(actor, "add_user", f"user {name}", reason) as t:
            await _insert_user(t, name, display_name=display_name, password_hash=hashed, actor=actor)

    async def set_enabled(self, name: str, *, enabled: bool, actor: str, reason: str = "") -> None:
        """A disabled account may nothing, and its sessions end. Raises NOT_FOUND, RESOURCE_INVALID_STATE for the last administrator."""
        async with self._change(actor, "enable_user" if enabled else "disable_user", f"user {name}", reason) as t:
            await _require_user(t, name)
            await accounts.set_enabled(t, name, enabled=enabled)
            if not enabled:
                await sessions.revoke_sessions(t, name)

    async def set_password(self, name: str, password: str, *, actor: str, reason: str = "") -> None:
        """A new password; every session of the account ends. Raises NOT_FOUND, INVALID_ARGUMENT."""
        hashed = await self._hashed(password, name)
        async with self._change(actor, "set_password", f"user {name}", reason) as t:
            if not await accounts.set_password(t, name, hashed):
                raise no_user(name)
            await sessions.revoke_sessions(t, name)

    async def delete_user(self, name: str, *, actor: str, reason: str = "") -> None:
        """With rules, sessions and tokens. Raises NOT_FOUND, RESOURCE_INVALID_STATE for the last administrator."""
        async with self._change(actor, "delete_user", f"user {name}", reason) as t:
            if not await accounts.delete_user(t, name):
                raise no_user(name)

    async def link(self, name: str, *, issuer: str, subject: str, actor: str, reason: str = "") -> None:
        """The subject signs in to this account from now on. Raises INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS."""
        identity = Identity(issuer=_checked_issuer(issuer), subject=subject)
        if not 1 <= len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
            message = (
                f"a subject has 1 to {LONGEST_SUBJECT} printable characters; it is `sub` of the provider's ID token"
            )
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        after = {"issuer": issuer, "subject": subject}
        async with self._change(actor, "link_user", f"user {name}", reason, after=after) as t:
            await _require_user(t, name)
            if not await identities.link(t, identity, name, actor=actor):
                message = f"{name} has an identity of {issuer} already, or the subject is another account; `toban user list -o wide` shows both"
                raise TobanError(ErrorCode.ALREADY_EXISTS, message)

    async def unlink(self, name: str, *, issuer: str, actor: str, reason: str = "") -> None:
        """What the provider gave the account goes, its sessions end, and no sign-in makes another account for the subject.

        Raises INVALID_ARGUMENT, NOT_FOUND, RESOURCE_INVALID_STATE.
        """
        before: dict[str, Any] = {}
        _checked_issuer(issuer)
        async with self._change(actor, "unlink_user", f"user {name}", reason, before=before) as t:
            await _require_user(t, name)
            subject = await identities.unlink(t, name, issuer=issuer, actor=actor)
            if subject is None:
                raise TobanError(ErrorCode.NOT_FOUND, f"{name} has no identity of {issuer}")
            before |= {"issuer": issuer, "subject": subject}
            await identities.replace_grants(t, name, Grants(), actor=actor)
            await sessions.revoke_sessions(t, name)

    async def list_groups(self) -> list[Row]:
        """Groups by name, with members."""
        async with autocommit(self.pool) as t:
            return await accounts.groups(t)

    async def add_group(self, name: str, *, actor: str, reason: str = "") -> None:
        """A new group without members. Raises INVALID_ARGUMENT, ALREADY_EXISTS."""
        _check_name("group", name)
        async with self._change(actor, "add_group", f"group {name}", reason) as t:
            if not await accounts.add_group(t, name, actor=actor):
                raise TobanError(ErrorCode.ALREADY_EXISTS, f"there is a group {name!r} already")

    async def delete_group(self, name: str, *, actor: str, reason: str = "") -> None:
        """With its rules. Raises NOT_FOUND, RESOURCE_INVALID_STATE."""
        async with self._change(actor, "delete_group", f"group {name}", reason) as t:
            if not await accounts.delete_group(t, name):
                raise _no_group(name)

    async def change_member(self, group: str, user: str, *, joins: bool, actor: str, reason: str = "") -> None:
        """A member more or less. Raises NOT_FOUND, RESOURCE_INVALID_STATE."""
        async with self._change(
            actor, "join_group" if joins else "leave_group", f"group {group}, user {user}", reason
        ) as t:
            await _require_user(t, user)
            if group not in {row["name"] for row in await accounts.groups(t)}:
                raise _no_group(group)
            await accounts.change_member(t, group=group, user=user, joins=joins)

    async def list_rules(self, *, user: str = "", group: str = "") -> list[Row]:
        """Rules of a user itself, of a group, or all."""
        async with autocommit(self.pool) as t:
            return await accounts.rules(t, user=user, group=group)

    async def add_rule(self, rule: NewRule, *, actor: str, reason: str = "") -> int:
        """Its number. Raises INVALID_ARGUMENT, NOT_FOUND, RESOURCE_INVALID_STATE when a denial would lock administrators out."""
        if bool(rule.user) == bool(rule.group):
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "a rule is of a user or of a group: name one of them")
        subject = f"user {rule.user}" if rule.user else f"group {rule.group}"
        after = {"effect": rule.effect.value, "role": rule.role.value, "for": str(rule.selector)}
        async with self._change(actor, "add_rule", subject, reason, after=after) as t:
            found = await accounts.add_rule(
                t,
                user=rule.user,
                group=rule.group,
                effect=rule.effect,
                role=rule.role,
                selector=rule.selector,
                actor=actor,
            )
            if found is None:
                raise no_user(rule.user) if rule.user else _no_group(rule.group)
            return found

    async def remove_rule(self, rule_id: int, *, actor: str, reason: str = "") -> None:
        """Raises NOT_FOUND, RESOURCE_INVALID_STATE for the rule of the last administrator."""
        was: dict[str, Any] = {}
        async with self._change(actor, "remove_rule", f"rule {rule_id}", reason, before=was) as t:
            rule = await accounts.delete_rule(t, rule_id)
            if rule is None:
                raise TobanError(ErrorCode.NOT_FOUND, f"there is no rule {rule_id}; `toban user rules` lists them")
            was |= {"of": rule.origin, "effect": rule.effect.value, "role": rule.role.value, "for": str(rule.selector)}

    async def may(self, user: str, action: Action, *, job: str = "", scope: str = "", scope_id: str = "") -> Verdict:
        """The decision that a request of this user gets now, with its reason; `scope` is of a run of `job`, "" = system.

        Raises NOT_FOUND, JOB_NOT_FOUND, INVALID_ARGUMENT for a scope without a job.
        """
        if not job and (scope or scope_id):
            message = "a scope is of runs of a job, and no job is named; name one (toban user may USER ACTION JOB)"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        if scope not in ("", *SCOPES):
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"scope is {scope[:60]!r}; use one of {', '.join(SCOPES)}")
        async with autocommit(self.pool) as t:
            found = await accounts.people(t, user)
            if not found or not user:
                raise no_user(user)
            target = (await targets.find(t, "job", [job])).get(job) if job else None
        if job and target is None:
            raise TobanError(ErrorCode.JOB_NOT_FOUND, f"there is no job {job!r}")
        if target is not None and scope:
            target = replace(target, scope=scope, scope_id=scope_id)
        return may(found[0], action, target)

    async def _hashed(self, password: str, user: str) -> str:
        check_password(password, user)
        return await self.passwords.hash(password)

    @asynccontextmanager
    async def _change(
        self,
        actor: str,
        action: str,
        target: str,
        reason: str,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Tx]:
        """A transaction around one change: alone, checked when it is made, and in the audit log with what was `before` and is `after`."""
        async with tx(self.pool) as t:
            await accounts.lock(t)
            people = await accounts.people(t)
            yield t
            check_change(people, await accounts.people(t), actor=_user_of(actor))
            await audit.note(t, actor, action, target, reason, before=before, after=after)
        _log.info("an account was changed", action=action, target=target, actor=actor)


def hash_secret(secret: str) -> bytes:
    """How a random secret is stored: without salt or stretching, since it has 256 bits."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _user_of(actor: str) -> str:
    """The account that acts, by a session or a token of it; "" = a certificate."""
    kind, _, name = actor.partition(" ")
    return name.partition(",")[0] if kind == "user" else ""


def _checked_issuer(issuer: str) -> str:
    if not issuer or len(issuer) > MAX_ISSUER:
        message = f"the issuer has {len(issuer)} characters; give the address of the provider, as its ID tokens have it (--issuer)"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    return issuer


def _check_first(people: list[Person]) -> None:
    if any(map(can_administer, people)):
        message = (
            "there is an administrator already; sign in as one, or set its password with `toban user password NAME`"
        )
        raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        message = f"{name[:64]!r} is no name of a {kind}; use 1 to 64 of a-z, 0-9 and . _ @ -, beginning with a letter or digit"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)


async def _insert_user(t: Tx, name: str, *, display_name: str, password_hash: str | None, actor: str) -> None:
    if not await accounts.add_user(t, name, display_name=display_name[:200], password_hash=password_hash, actor=actor):
        raise TobanError(ErrorCode.ALREADY_EXISTS, f"there is a user {name!r} already")


async def _require_user(t: Tx, name: str) -> None:
    if not name or not await accounts.people(t, name):
        raise no_user(name)


def no_user(name: str) -> TobanError:
    """NOT_FOUND: no account has this name."""
    return TobanError(ErrorCode.NOT_FOUND, f"there is no user {name!r}; `toban user list` shows all")


def _no_group(name: str) -> TobanError:
    return TobanError(ErrorCode.NOT_FOUND, f"there is no group {name!r}; `toban user groups` shows all")
