"""Set, list, remove and test targets of webhooks, and send deliveries again. Each change is in the audit log, without URL and secret."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban_coordinator.app.named_objects import check_new, facts, listed, not_found, seal, unseal
from toban_coordinator.app.paging import Page, PageRequest, page_of
from toban_coordinator.decide.notifications import webhooks as decide
from toban_coordinator.decide.notifications.webhook_forms import FORMS, GENERIC, SMTP
from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store import object_names
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.notifications import webhook_outbox, webhooks
from toban_coordinator.store.notifications.webhook_outbox import Wanted
from toban_coordinator.store.notifications.webhooks import Filter, StoredTarget, TargetValues
from toban_coordinator.store.secrets import secrets
from toban_coordinator.store.secrets.secrets import SealedRow
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_domain.mail_target import is_mail
from toban_domain.nearest import suggestion
from toban_domain.run import FAILURES
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit, tx

KEY_BYTES = 32
MAX_REDELIVERED = 10_000
STATES = ("pending", "delivered", "failed")
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChange:
    """A target to make or to change. Without url, form, filter, enabled or secret, what it has stays; `new_secret`: a random one."""

    name: str
    url: str = ""
    form: str = ""
    which: Filter | None = None
    enabled: bool | None = None
    secret: str = ""
    new_secret: bool = False
    reason: str = ""

    def __repr__(self) -> str:
        return f"TargetChange({self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOperations:
    """Changes tables `webhook_targets` and `secrets`. `random_bytes` makes secrets."""

    pool: Pool
    keys: SecretKeys
    random_bytes: Callable[[int], bytes] = os.urandom

    async def set(self, change: TargetChange, actor: str) -> tuple[StoredTarget, str]:
        """The target, and a secret that was made for it. Raises INVALID_ARGUMENT, ALREADY_EXISTS, RESOURCE_EXHAUSTED, SECRETS_KEY_MISSING."""
        _check(change)
        made = decide.secret_of(self.random_bytes(KEY_BYTES)) if change.new_secret else ""
        async with tx(self.pool) as t:
            before = await webhooks.targets(t, change.name)
            change = _with_form(change, before[0].form if before else "")
            if await webhooks.lock(t, change.name) is None:
                wants = not change.secret and change.form in ("", GENERIC)
                made = made or (decide.secret_of(self.random_bytes(KEY_BYTES)) if wants else "")
                await self._create(t, change, made or change.secret, actor)
            else:
                if (
                    change.form == GENERIC
                    and not (made or change.secret)
                    and not (await self._opened(t, change.name))[1]
                ):
                    made = decide.secret_of(self.random_bytes(KEY_BYTES))
                await self._change(t, change, made or change.secret, actor)
            (after,) = await webhooks.targets(t, change.name)
            was = _facts(before[0]) if before else None
            now = _facts(after) | {"secret": "changed" if made or change.secret else "kept"}
            await audit.note(t, actor, "webhook.set", f"webhook {change.name}", change.reason, before=was, after=now)
        _log.info("a webhook was set", subject=change.name, version=after.version, actor=actor)
        return after, made

    async def list(self) -> list[StoredTarget]:
        """All of them, by name."""
        async with autocommit(self.pool) as t:
            return await webhooks.targets(t)

    async def remove(self, name: str, *, reason: str, actor: str) -> None:
        """Raises NOT_FOUND."""
        async with tx(self.pool) as t:
            before = await webhooks.targets(t, name)
            secret = await webhooks.remove(t, name)
            if secret is None:
                raise await not_found(t, "webhook", name)
            if users := await webhooks.users(t, name):
                message = (
                    f"webhook {name!r} is notified by {listed(users)}; take it out of `notify` of these jobs first"
                )
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message, detail={"jobs": users})
            await secrets.remove(t, secret)
            was = _facts(before[0]) if before else None
            await audit.note(t, actor, "webhook.remove", f"webhook {name}", reason, before=was)
        _log.info("a webhook was removed", subject=name, actor=actor)

    async def test(self, name: str, *, reason: str, actor: str) -> Row:
        """A delivery of type webhook.test, also to a target that gets no ends of runs. Raises NOT_FOUND, RESOURCE_INVALID_STATE."""
        async with tx(self.pool) as t:
            found = await webhooks.targets(t, name)
            delivery = await webhook_outbox.add(t, name, decide.TEST)
            if not found or delivery is None:
                raise await not_found(t, "webhook", name)
            if not found[0].enabled:
                message = f"webhook {name!r} is disabled; enable it first: toban webhook set {name} --enable"
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
            await audit.note(t, actor, "webhook.test", f"webhook {name}", reason, after={"delivery": delivery})
            (row,) = await webhook_outbox.page(t, Wanted(id=delivery), below=delivery + 1, limit=1)
        return row

    async def deliveries(self, wanted: Wanted, page: PageRequest) -> Page:
        """A page, newest first. Raises INVALID_ARGUMENT, NOT_FOUND."""
        if wanted.state not in ("", *STATES):
            message = f"{wanted.state[:40]!r} is no state of a delivery; use {', '.join(STATES)}"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        limit, below = page.rows, page.below_id
        async with autocommit(self.pool) as t:
            if wanted.webhook and wanted.webhook not in await object_names.names(t, "webhook"):
                raise await not_found(t, "webhook", wanted.webhook)
            found = await webhook_outbox.page(t, wanted, below=below, limit=limit + 1)
        return page_of(found, limit, "id")

    async def redeliver(self, name: str, ids: Sequence[int], *, reason: str, actor: str) -> int:
        """How many will be sent again. Raises NOT_FOUND when there is no such target, or one of `ids` is none of its deliveries."""
        if len(ids) > MAX_REDELIVERED:
            message = f"{len(ids)} deliveries are given, the limit is {MAX_REDELIVERED}"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        async with tx(self.pool) as t:
            if name not in await object_names.names(t, "webhook"):
                raise await not_found(t, "webhook", name)
            count = await webhook_outbox.redeliver(t, name, ids, limit=MAX_REDELIVERED)
            if count < len(set(ids)):
                message = (
                    f"webhook {name!r} has {count} of these {len(set(ids))} deliveries to send again: the others are not "
                    f"its own, or a try is under way; see `toban webhook deliveries {name}`"
                )
                raise TobanError(ErrorCode.NOT_FOUND, message)
            after = {"deliveries": count, "ids": list(ids)[:20]}
            await audit.note(t, actor, "webhook.redeliver", f"webhook {name}", reason, after=after)
        return count

    async def _create(self, t: Tx, change: TargetChange, secret: str, actor: str) -> None:
        if not change.url:
            raise TobanError(ErrorCode.NOT_FOUND, f"there is no webhook {change.name!r}; a new one needs --url")
        await check_new(t, "webhook", change.name, most=decide.MAX_TARGETS)
        await self._seal(t, change.name, change.url, secret, actor)
        values = TargetValues(
            origin=decide.origin_of(change.url),
            form=change.form or GENERIC,
            which=change.which or Filter(states=FAILURES, labels={}),
            enabled=change.enabled is not False,
        )
        if not await webhooks.create(t, change.name, values, secret=f"webhook.{change.name}", actor=actor):
            raise TobanError(ErrorCode.CONFLICT, f"webhook {change.name!r} was made by another call; try again")

    async def _change(self, t: Tx, change: TargetChange, secret: str, actor: str) -> None:
        if change.url or secret:
            url, old = ("", "") if change.url and secret else await self._opened(t, change.name)
            await self._seal(t, change.name, change.url or url, secret or old, actor)
        values = TargetValues(
            origin=decide.origin_of(change.url) if change.url else None,
            form=change.form or None,
            which=change.which,
            enabled=change.enabled,
            close=bool(change.url or secret or change.enabled),
        )
        await webhooks.change(t, change.name, values, actor=actor)

    async def _opened(self, t: Tx, name: str) -> tuple[str, str]:
        stored = f"webhook.{name}"
        return open_target(self.keys, await secrets.find(t, [stored]), stored)

    async def _seal(self, t: Tx, name: str, url: str, secret: str, actor: str) -> None:
        await seal(t, self.keys, "webhook", name, {"url": url, "secret": secret}, actor=actor)


def open_target(keys: SecretKeys, rows: Mapping[str, SealedRow], stored: str) -> tuple[str, str]:
    """URL and secret, from `secrets.find`. Raises SECRETS_KEY_MISSING, SECRET_NOT_FOUND."""
    remedy = "set URL and secret of the webhook again"
    return unseal(keys, rows, stored, lambda value: (value["url"], value["secret"]), remedy)


def _check(change: TargetChange) -> None:
    decide.check_name(change.name)
    if change.secret and change.new_secret:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "give a secret, or ask for a new one, not both")
    if change.secret:
        decide.secret_key(change.secret)
    if change.url:
        decide.origin_of(change.url)
    if change.form and change.form not in FORMS:
        message = f"{change.form[:40]!r} is no form of a webhook; use {', '.join(FORMS)}"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    if change.which is not None:
        decide.check_filter(change.which.jobs, change.which.labels)


def _with_form(change: TargetChange, form: str) -> TargetChange:
    """The change with the form that its URL needs; `form` is the present one. Raises INVALID_ARGUMENT where they do not fit."""
    mail = is_mail(change.url) if change.url else form == SMTP
    wanted = change.form or (SMTP if mail else form)
    if mail != (wanted == SMTP):
        message = f"the URL of a webhook of form {SMTP} begins with smtp:// or smtps://, and of no other; give both --url and --form"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    if mail and (change.secret or change.new_secret):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "mail has no signature; leave the secret out")
    return replace(change, form=wanted if wanted != form else change.form)


async def notify_problems(t: Tx, spec: JobSpec) -> list[tuple[str, str, str]]:
    """Rules of a definition that name no webhook: path, message and remedy of each."""
    known = await object_names.names(t, "webhook") if spec.notify else []
    found = []
    for index, rule in enumerate(spec.notify):
        if rule.webhook not in known:
            hint = suggestion(rule.webhook, known, f"run `toban webhook set {rule.webhook} --url URL`")
            found.append((f"spec.notify[{index}].webhook", f"there is no webhook {rule.webhook!r}", hint))
    return found


def _facts(target: StoredTarget) -> dict[str, Any]:
    return facts(target, "origin", "form", "states", "jobs", "labels", "enabled", "version")
