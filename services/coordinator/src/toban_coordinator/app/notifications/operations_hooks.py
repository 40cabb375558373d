"""Set, list, remove and test incoming webhooks. Each change is in the audit log, without a secret."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_coordinator.app.named_objects import check_new, facts, not_found, seal, unseal
from toban_coordinator.decide.notifications import hooks as decide
from toban_coordinator.decide.notifications.hook_messages import (
    HookEvent,
    HookMessage,
    is_authentic,
    read_message,
    sign,
)
from toban_coordinator.decide.notifications.hooks import HookMapping
from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.notifications import hooks
from toban_coordinator.store.notifications.hooks import HookValues, StoredHook
from toban_coordinator.store.secrets import secrets
from toban_coordinator.store.secrets.secrets import SealedRow
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import check_payload
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookChange:
    """A hook to make or to change. What is not given stays. A new secret leaves the one before valid, until `drop_old_secret`."""

    name: str
    kind: str = ""
    mapping: HookMapping | None = None
    enabled: bool | None = None
    rate: int = 0
    secret: str = ""
    new_secret: bool = False
    drop_old_secret: bool = False
    reason: str = ""

    def __repr__(self) -> str:
        return f"HookChange({self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOperations:
    """Changes tables `hooks` and `secrets`. `random_bytes` makes secrets."""

    pool: Pool
    keys: SecretKeys
    now: Callable[[], datetime]
    random_bytes: Callable[[int], bytes] = os.urandom

    async def set(self, change: HookChange, actor: str) -> tuple[StoredHook, str]:
        """The hook, and a secret that was made for it. Raises INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, RESOURCE_INVALID_STATE,
        RESOURCE_EXHAUSTED, SECRETS_KEY_MISSING."""
        decide.check_name(change.name)
        if change.secret and change.new_secret:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "give a secret, or ask for a new one, not both")
        if (change.secret or change.new_secret) and change.drop_old_secret:
            message = "a new secret and the end of the old one are two changes; senders use the new one in between"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        async with tx(self.pool) as t:
            exists = await hooks.lock(t, change.name)
            before = await hooks.hooks(t, change.name)
            made = await (self._change(t, change, before[0], actor) if exists else self._create(t, change, actor))
            (after,) = await hooks.hooks(t, change.name)
            was = _facts(before[0]) if before else None
            await audit.note(
                t, actor, "hook.set", f"hook {change.name}", change.reason, before=was, after=_facts(after)
            )
        _log.info("a hook was set", subject=change.name, version=after.version, actor=actor)
        return after, made

    async def list(self, name: str = "") -> list[StoredHook]:
        """All of them, by name; or the one of this name. Raises NOT_FOUND."""
        async with autocommit(self.pool) as t:
            found = await hooks.hooks(t, name)
            if name and not found:
                raise await not_found(t, "hook", name)
        return found

    async def remove(self, name: str, *, reason: str, actor: str) -> None:
        """Raises NOT_FOUND."""
        async with tx(self.pool) as t:
            before = await hooks.hooks(t, name)
            secret = await hooks.remove(t, name)
            if secret is None:
                raise await not_found(t, "hook", name)
            await secrets.remove(t, secret)
            was = _facts(before[0]) if before else None
            await audit.note(t, actor, "hook.remove", f"hook {name}", reason, before=was)
        _log.info("a hook was removed", subject=name, actor=actor)

    async def test(self, name: str, body: str, value: str) -> HookEvent:
        """What a message with this body, signed with the present secret, would become. Raises NOT_FOUND, and as receiving it does."""
        [hook] = await self.list(name or "-")
        async with autocommit(self.pool) as t:
            valid = open_secrets(self.keys, await secrets.find(t, [hook.secret]), hook.secret)
        source, _, where = hook.type_from.partition(":")
        if value and source != decide.HEADER:
            message = f"hook {name!r} reads no header, so a value for it has no effect; put it into the payload"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        given = (body or "{}").encode()
        now = self.now().timestamp()
        headers = sign(hook.kind, valid[0], given, message_id="test", now=now)
        is_cloud_event = hook.kind in (decide.CLOUDEVENTS, decide.CLOUDEVENTS_TOKEN)
        headers["content-type"] = f"application/{'cloudevents+' if is_cloud_event else ''}json"
        signed = HookMessage(name=name, headers={**headers, **({where: value} if value else {})}, body=given)
        assert is_authentic(hook.kind, valid, signed), "the message is signed with the secret that checks it"
        said = read_message(hook.kind, hook.mapping, signed, now=now)
        check_payload(said.payload)
        return said

    async def _create(self, t: Tx, change: HookChange, actor: str) -> str:
        if change.drop_old_secret or not change.kind:
            raise TobanError(ErrorCode.NOT_FOUND, f"there is no hook {change.name!r}; a new one needs --kind")
        kind = decide.check_kind(change.kind)
        if change.mapping is None:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, "a new hook needs the type of its events, or the values for them"
            )
        await check_new(t, "hook", change.name, most=decide.MAX_HOOKS)
        made = "" if change.secret else decide.make_secret(kind, self.random_bytes(decide.KEY_BYTES))
        await self._seal(t, change.name, [made or decide.check_secret(kind, change.secret)], actor)
        values = HookValues(
            mapping=decide.check_mapping(change.mapping, kind),
            enabled=change.enabled is not False,
            rate=decide.check_rate(change.rate or decide.DEFAULT_RATE),
        )
        if not await hooks.create(t, change.name, values, kind=kind, secret=f"hook.{change.name}", actor=actor):
            raise TobanError(ErrorCode.CONFLICT, f"hook {change.name!r} was made by another call; try again")
        return made

    async def _change(self, t: Tx, change: HookChange, before: StoredHook, actor: str) -> str:
        if change.kind and change.kind != before.kind:
            message = (
                f"hook {before.name!r} is of kind {before.kind}, which cannot be changed; remove it, and make it again"
            )
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
        made = decide.make_secret(before.kind, self.random_bytes(decide.KEY_BYTES)) if change.new_secret else ""
        given = made or (decide.check_secret(before.kind, change.secret) if change.secret else "")
        valid: list[str] | None = None
        if given or change.drop_old_secret:
            old = open_secrets(self.keys, await secrets.find(t, [before.secret]), before.secret)
            valid = [given, *(one for one in old if one != given)][: decide.MAX_VALID] if given else old[:1]
            await self._seal(t, before.name, valid, actor)
        values = HookValues(
            mapping=None if change.mapping is None else decide.check_mapping(change.mapping, before.kind),
            enabled=change.enabled,
            rate=decide.check_rate(change.rate) if change.rate else None,
            secrets=None if valid is None else len(valid),
        )
        await hooks.change(t, before.name, values, actor=actor)
        return made

    async def _seal(self, t: Tx, name: str, valid: Sequence[str], actor: str) -> None:
        await seal(t, self.keys, "hook", name, {"secrets": valid}, actor=actor)


def open_secrets(keys: SecretKeys, found: Mapping[str, SealedRow], stored: str) -> list[str]:
    """The valid secrets of a hook, the newest first, from `secrets.find`. Raises SECRETS_KEY_MISSING, SECRET_NOT_FOUND."""
    remedy = "remove the hook, and make it again"
    return unseal(keys, found, stored, lambda value: [str(secret) for secret in value["secrets"]], remedy)


def _facts(hook: StoredHook) -> dict[str, Any]:
    names = ("kind", "event_type", "type_from", "events", "fields", "enabled", "rate_per_minute", "secrets", "version")
    return facts(hook, *names)
