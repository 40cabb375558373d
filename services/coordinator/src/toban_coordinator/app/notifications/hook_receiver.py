"""Messages to hooks become events. Any coordinator answers; the site only passes on what it received, so it cannot forge a signed message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from toban_coordinator.app.notifications import event_metrics
from toban_coordinator.app.notifications.operations_hooks import open_secrets
from toban_coordinator.decide.notifications.hook_messages import (
    MAX_BODY,
    HookEvent,
    HookMessage,
    is_authentic,
    read_message,
)
from toban_coordinator.decide.notifications.hooks import STANDARD, make_secret
from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store.notifications import events, hooks
from toban_coordinator.store.notifications.hooks import StoredHook
from toban_coordinator.store.secrets import secrets
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import check_event
from toban_domain.payload import check_payload
from toban_observability import metrics
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_store.errors import Refused
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

UNKNOWN = (
    "there is no such hook, or the message is not signed with its secret; the log of the coordinators has the reason"
)
"""The one answer to everybody who has not shown that they know the secret of a hook."""
# So that an unknown hook takes as long as a wrong signature.
_NO_SECRET = make_secret(STANDARD, bytes(32))

_log = get_logger(__name__)
_received = metrics.counter(
    "toban_hook_messages_total",
    "Messages to hooks by result: accepted, duplicate, ignored (no event for its value), ping, unauthentic (unknown or disabled hook, wrong "
    "signature or token), invalid, throttled.",
    ("result",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What became of a message: `event_id` 0 = no event."""

    result: str
    event_id: int = 0
    event_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReceiver:
    """Writes events of authentic messages, once for each id."""

    pool: Pool
    keys: SecretKeys
    now: Callable[[], datetime]
    throttle: LogThrottle = field(default_factory=LogThrottle)

    async def receive(self, message: HookMessage) -> Received:
        """Raises NOT_FOUND for what is not authentic, whatever the reason; INVALID_ARGUMENT, PAYLOAD_INVALID, PAYLOAD_TOO_LARGE,
        RESOURCE_EXHAUSTED for what is."""
        hook = await self._authentic(message)
        try:
            said = read_message(hook.kind, hook.mapping, message, now=self.now().timestamp())
            done = await self._emit(hook, said)
        except TobanError as error:
            _received.labels("throttled" if error.code is ErrorCode.RESOURCE_EXHAUSTED else "invalid").inc()
            self._warn(message, error.message, hook.name)
            raise
        _received.labels(done.result).inc()
        return done

    async def _authentic(self, message: HookMessage) -> StoredHook:
        # PostgreSQL takes no NUL.
        hook, valid, problem = await self._find(message.name.replace("\0", "?"))
        authentic = len(message.body) <= MAX_BODY and is_authentic(
            hook.kind if hook else STANDARD, valid or [_NO_SECRET], message
        )
        problem = problem or ("" if authentic else "no signature or token of the message is of a valid secret")
        if hook is None or problem:
            _received.labels("unauthentic").inc()
            self._warn(message, problem, hook.name if hook else "")
            raise TobanError(ErrorCode.NOT_FOUND, UNKNOWN)
        return hook

    async def _find(self, name: str) -> tuple[StoredHook | None, Sequence[str], str]:
        """The hook, its secrets, and why no message to it is accepted."""
        async with autocommit(self.pool) as t:
            found = await hooks.hooks(t, name) if name else []
            stored = await secrets.find(t, [f"hook.{name[:60]}"])
        if not found:
            return None, [], "there is no hook of this name"
        try:
            valid = open_secrets(self.keys, stored, found[0].secret)
        except TobanError as error:
            return found[0], [], error.message
        return found[0], valid, "" if found[0].enabled else "the hook is disabled"

    async def _emit(self, hook: StoredHook, said: HookEvent) -> Received:
        if said.is_ping:
            return Received(result="ping")
        if not said.type:
            return Received(result="ignored")
        key = f"hook/{hook.name}/{said.id}"
        check_event(said.type, key)
        payload = check_payload(said.payload)
        try:
            async with tx(self.pool) as t:
                done = await _once(t, hook, said.type, key, payload)
        except Refused as error:
            message = f"PostgreSQL cannot store this event ({error.message}); send large numbers as text"
            raise TobanError(ErrorCode.PAYLOAD_INVALID, message) from None
        if done.result == "accepted":
            event_metrics.received.labels("hook").inc()
        return done

    def _warn(self, message: HookMessage, reason: str, known: str) -> None:
        """At most once in a while for each hook, and for all names together that are of no hook."""
        suppressed = self.throttle.admit((known, reason), self.now().timestamp())
        if suppressed is not None:
            _log.warning(
                "a message to a hook was refused",
                subject=message.name[:80],
                reason=reason,
                address=message.address[:45],
                similar=suppressed,
            )


async def _once(t: Tx, hook: StoredHook, event_type: str, key: str, payload: str) -> Received:
    if not await hooks.lock_version(t, hook):
        raise TobanError(ErrorCode.UNAVAILABLE, f"hook {hook.name!r} has just changed; send the message again")
    known = await hooks.event_of(t, event_type, key)
    if known is not None:
        return Received(result="duplicate", event_id=known, event_type=event_type)
    if not await hooks.take(t, hook):
        seconds = max(1, -(-60 // hook.rate_per_minute))
        message = f"hook {hook.name!r} takes {hook.rate_per_minute} messages a minute (`toban hook set --rate`); wait {seconds} s"
        raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, message, detail={"retry_after_seconds": seconds})
    made = await events.emit(t, event_type=event_type, payload=payload, key=key, actor=f"hook {hook.name}")
    return Received(result="accepted", event_id=made.id, event_type=event_type)
