"""Events: the inbox that emitting appends to, and the statement that turns events into runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from toban_domain.concurrency import DEFAULT_SCOPE
from toban_domain.event import EventPlan, InboxEvent
from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Emitted:
    """An accepted event; `duplicate` is a hint that another one of its type has or had its key."""

    id: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Inbox:
    """What waits: how many events, counted up to a limit, and the age of the oldest in seconds."""

    events: int
    oldest: float


async def emit(t: Tx, *, event_type: str, payload: str, key: str, actor: str) -> Emitted:
    """∅ → inbox, with a wake-up for loop `events`; `payload` is canonical JSON, `key` "" = none."""
    parameters = {"event_type": event_type, "payload": payload, "key": key, "actor": actor}
    row = await t.fetch_one(_sql.emit, parameters)
    assert row is not None
    return Emitted(row["id"], row["duplicate"])


async def due(t: Tx, *, limit: int) -> list[InboxEvent]:
    """Unprocessed events, oldest first, without those that wait for their next try."""
    rows = await t.fetch_all(_sql.due, {"limit": limit})
    return [InboxEvent(**{**row, "retry_triggers": tuple(row["retry_triggers"])}) for row in rows]


async def keys(t: Tx, wanted: Collection[Key], *, days: int) -> dict[Key, int]:
    """The events that hold these (type, key) pairs since at most `days`."""
    if not wanted:
        return {}
    parameters = {"types": [kind for kind, _ in wanted], "keys": [key for _, key in wanted], "days": days}
    rows = await t.fetch_all(_sql.keys, parameters)
    return {(row["event_type"], row["dedupe_key"]): row["event_id"] for row in rows}


async def process(t: FencedTx, plans: Sequence[EventPlan], *, days: int) -> dict[int, str]:
    """Carries plans out, each whole or not at all; the outcome by event id.

    An event that is missing in the answer was left as it is: it, or a trigger that was judged for it, changed since the plan was made.
    """
    rows = await t.fetch_all(_sql.process, {**_plans(plans), **_judged(plans), **_starts(plans), "days": days})
    outcomes: dict[int, str] = {row["id"]: row["outcome"] for row in rows}
    retried = [p for p in plans if outcomes.get(p.event.id) == "retry"]
    if retried:
        await t.execute(_sql.retry_later, _retries(retried))
    failed = [p.event for p in plans if outcomes.get(p.event.id) == "failed" and p.event.key and not p.keeps_key]
    if failed:
        parameters = {"ids": [e.id for e in failed], "types": [e.type for e in failed], "keys": [e.key for e in failed]}
        await t.execute(_sql.free_keys, parameters)
    return outcomes


async def postpone(t: FencedTx, event: InboxEvent, error: str, *, delay_seconds: float) -> bool:
    """A later try for an event that could not be written; False when it was processed meanwhile."""
    parameters = {"id": event.id, "tries": event.tries, "error": error, "delay": delay_seconds}
    return await t.execute(_sql.postpone, parameters) > 0


async def inbox(t: Tx, *, limit: int) -> Inbox:
    """What waits, for metrics."""
    row = await t.fetch_one(_sql.inbox, {"limit": limit})
    assert row is not None
    return Inbox(row["events"], max(0.0, row["oldest"]))


async def page(t: Tx, *, below: int, event_type: str = "", unprocessed: bool = False, limit: int) -> list[Row]:
    """Events, newest first."""
    parameters = {"below": below, "event_type": event_type, "unprocessed": unprocessed, "limit": limit}
    return await t.fetch_all(_sql.page, parameters)


def _plans(plans: Sequence[EventPlan]) -> dict[str, list[Any]]:
    return {
        "ids": [p.event.id for p in plans],
        "tries": [p.event.tries for p in plans],
        "outcomes": [p.outcome for p in plans],
        "messages": [p.message for p in plans],
        "keeps": [p.keeps_key for p in plans],
    }


def _retries(plans: Sequence[EventPlan]) -> dict[str, list[Any]]:
    triggers = [(p.event.id, trigger.name) for p in plans for trigger in (*(f.trigger for f in p.failures), *p.later)]
    return {
        "ids": [p.event.id for p in plans],
        "tried": [p.tries for p in plans],
        "delays": [p.delay_seconds for p in plans],
        "messages": [p.message for p in plans],
        "trigger_ids": [event for event, _ in triggers],
        "trigger_names": [name for _, name in triggers],
    }


def _judged(plans: Sequence[EventPlan]) -> dict[str, list[int]]:
    judged = [(p.event.id, start.trigger) for p in plans for start in p.starts]
    judged += [(p.event.id, failure.trigger) for p in plans for failure in p.failures]
    return {
        "judged_ids": [event for event, _ in judged],
        "judged_triggers": [trigger.id for _, trigger in judged],
        "judged_versions": [trigger.version for _, trigger in judged],
    }


def _starts(plans: Sequence[EventPlan]) -> dict[str, list[Any]]:
    starts = [(p.event.id, start.trigger, start.template) for p in plans for start in p.starts]
    ended = [start.ended for p in plans for start in p.starts]
    return {
        "scopes": [run.scope if run else DEFAULT_SCOPE[0] for run in ended],
        "scope_ids": [run.scope_id if run else DEFAULT_SCOPE[1] for run in ended],
        "after_runs": [run.id if run else None for run in ended],
        "depths": [run.depth + 1 if run else 0 for run in ended],
        "event_ids": [event for event, _, _ in starts],
        "trigger_ids": [trigger.id for _, trigger, _ in starts],
        "triggers": [trigger.name for _, trigger, _ in starts],
        "definition_ids": [trigger.definition_id for _, trigger, _ in starts],
        "versions": [trigger.definition_version for _, trigger, _ in starts],
        "jobs": [trigger.job for _, trigger, _ in starts],
        "priorities": [template.priority for _, _, template in starts],
        "max_attempts": [template.max_attempts for _, _, template in starts],
        "max_lost": [template.max_lost for _, _, template in starts],
        "timeouts": [template.timeout_seconds for _, _, template in starts],
        "payloads": [template.payload for _, _, template in starts],
        "groups": [template.group for _, _, template in starts],
    }
