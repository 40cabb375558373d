"""The outbox of webhooks for those who send: deliveries that are due, made ready and signed, and how each try ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toban_coordinator.app.notifications.operations_webhooks import open_target
from toban_coordinator.decide.notifications import webhook_forms
from toban_coordinator.decide.notifications import webhooks as decide
from toban_coordinator.decide.notifications.quiet_hours import quiet_until
from toban_coordinator.decide.notifications.webhooks import TryResult
from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store.notifications import webhook_outbox
from toban_coordinator.store.notifications.webhook_outbox import Claimed
from toban_coordinator.store.runs import run_ends
from toban_coordinator.store.secrets import secrets
from toban_coordinator.store.secrets.secrets import SealedRow
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.notify import QuietHours
from toban_domain.run_end import EndedRun
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import autocommit, tx

MAX_CLAIM = 100
GONE = "its run is past its retention (setting history_retention_days), so there is nothing to send"
_log = get_logger(__name__)
tries = metrics.counter(
    "toban_webhook_tries_total",
    "Tries to deliver webhooks, by outcome: delivered, retried, failed; dropped = not tried, because the run is past its retention.",
    ("outcome",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A POST that is ready to be sent, before the lease ends."""

    delivery: int
    target: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one call of a sender got, under one lease, and when to ask again, seconds."""

    lease: str
    requests: Sequence[Outgoing]
    next_poll_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOutbox:
    """Any coordinator answers. The secret of a signature never leaves it."""

    pool: Pool
    keys: SecretKeys
    ids: IdSource
    now: Callable[[], datetime]

    async def claim(self, limit: int) -> Claim:
        """At most `limit` deliveries. One that cannot be made ready counts as a try that failed. Raises INVALID_ARGUMENT."""
        if not 1 <= limit <= MAX_CLAIM:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"limit is {limit}; use 1 to {MAX_CLAIM}")
        lease = self.ids.uuid()
        async with autocommit(self.pool) as t:
            found = await webhook_outbox.claim(t, lease=lease, limit=limit)
            any_target = bool(found) or await webhook_outbox.any_target(t)
            sealed = await secrets.find(t, {one.secret for one in found}) if found else {}
            runs = await run_ends.known(t, [one.run_id for one in found if one.run_id is not None])
        quiet, gone = await self._set_aside(lease, found, runs)
        requests = []
        for one in found:
            if one.id in quiet or one.id in gone:
                continue
            try:
                requests.append(self._request(one, sealed, runs))
            except TobanError as error:
                await self.confirm(one.id, lease, TryResult(error=error.message))
        # What is set aside has taken the place of others, which are due.
        more = len(found) == limit or bool(quiet or gone)
        return Claim(
            lease=lease,
            requests=requests,
            next_poll_seconds=decide.poll_seconds(any_target=any_target, more=more),
        )

    async def confirm(self, delivery: int, lease: str, result: TryResult) -> bool:
        """Stores how a try ended; False when its lease has gone to another sender."""
        result = result._replace(error=_clean(result))
        async with tx(self.pool) as t:
            held = await webhook_outbox.held(t, delivery, lease)
            if held is None:
                return False
            after = decide.after_try(held.attempts, result)
            await webhook_outbox.settle(t, delivery, lease, result, after)
            if not result.error:
                name, before = await webhook_outbox.recovered(t, held.target_id)
                count, pause = 0, 0.0
            else:
                name, before = await webhook_outbox.failures(t, held.target_id)
                count, pause = before + 1, decide.pause_seconds(before + 1)
                await webhook_outbox.note_failure(t, held.target_id, count=count, error=result.error, pause=pause)
        tries.labels({"pending": "retried"}.get(after.state, after.state)).inc()
        if not count and before >= decide.BREAKER_FAILURES:
            _log.info("a webhook that was down takes deliveries again", subject=name, failures=before)
        elif count == decide.BREAKER_FAILURES:
            _note_down(name, count, pause, result)
        return True

    async def _set_aside(
        self, lease: str, found: Sequence[Claimed], runs: Mapping[int, EndedRun]
    ) -> tuple[Mapping[int, datetime], Mapping[int, Claimed]]:
        """What is not sent now because of quiet hours, with their ends, and what cannot be sent any more; by delivery."""
        gone = {one.id: one for one in found if one.run_id is not None and one.run_id not in runs}
        untils = {one.id: _quiet_until(one, self.now()) for one in found if one.id not in gone}
        quiet = {delivery: until for delivery, until in untils.items() if until is not None}
        if quiet or gone:
            async with autocommit(self.pool) as t:
                if quiet:
                    await webhook_outbox.postpone(t, lease, quiet)
                if gone:
                    await webhook_outbox.drop(t, lease, gone, GONE)
        for one in gone.values():
            tries.labels("dropped").inc()
            _log.warning("a delivery of a webhook is dropped", subject=one.target, run_id=one.run_id, reason=GONE)
        return quiet, gone

    def _request(self, one: Claimed, sealed: Mapping[str, SealedRow], runs: Mapping[int, EndedRun]) -> Outgoing:
        url, secret = open_target(self.keys, sealed, one.secret)
        data = _data(one, runs)
        body = webhook_forms.body(one.form, one.type, one.created_at, data)
        headers = decide.signed_headers(secret, one.event_id, self.now(), body)
        if one.form == webhook_forms.SMTP:
            headers["subject"] = webhook_forms.subject(one.type, data)
        return Outgoing(delivery=one.id, target=one.target, url=url, headers=headers, body=body)


def _quiet_until(one: Claimed, now: datetime) -> datetime | None:
    return quiet_until(QuietHours.from_json(one.quiet), now) if one.quiet else None


def _data(one: Claimed, runs: Mapping[int, EndedRun]) -> Mapping[str, Any]:
    if one.run_id is None:
        return one.data or {"webhook": one.target}
    run = runs[one.run_id]
    return decide.run_data(run.facts["run"], run.labels)


def _clean(result: TryResult) -> str:
    """The error as one line; every response that is not 200 to 299 is one."""
    error = result.error or ("" if 200 <= result.status <= 299 else f"the target responded with {result.status}")
    return " ".join("".join(c if c.isprintable() else " " for c in error).split())[: decide.MAX_ERROR]


def _note_down(name: str, count: int, pause: float, result: TryResult) -> None:
    _log.warning(
        "a webhook has failed several times in a row; its deliveries wait",
        subject=name,
        failures=count,
        error=result.error,
        next_try_seconds=pause,
    )
