"""What becomes of an event: which triggers start their jobs for it with which payload, and whether it is a duplicate.

Triggers are judged once an event: when some of them fail, only those are tried again, by name and as they are then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toban_domain.errors import TobanError
from toban_domain.event import DueTrigger, EventPlan, Failure, InboxEvent, Start
from toban_domain.event_filter import matches
from toban_domain.event_mapping import EventFacts, fill
from toban_domain.fire_plan import RunTemplate
from toban_domain.payload import parse_payload
from toban_domain.run_end import MAX_CHAIN_DEPTH, RUN_END

# Tries after the first, when another one could help.
EVENT_RETRIES = 5
MAX_MESSAGE = 500

# Which event holds a key, by (type, key).
Holders = Mapping[tuple[str, str], int]
# The template of a run of a trigger's job with a mapped payload; raises TobanError when the payload does not fit, or there is no such definition.
MakeTemplate = Callable[[DueTrigger, Mapping[str, Any]], RunTemplate]


def duplicate(event: InboxEvent, holders: Holders) -> EventPlan | None:
    """The plan of an event whose key another one holds; None when it is no duplicate."""
    holder = holders.get((event.type, event.key)) if event.key else None
    if holder is None or holder == event.id:
        return None
    return EventPlan(event=event, outcome="duplicate", message=f"event {holder} has its key")


def first_of_keys(plans: Iterable[EventPlan], holders: Holders) -> list[EventPlan]:
    """The plans, which come oldest first, as they are when `holders` hold their keys already: of several with one key the first counts."""
    held = dict(holders)
    kept: list[EventPlan] = []
    for given in plans:
        plan = duplicate(given.event, held) or given
        if plan.keeps_key:
            held[plan.event.type, plan.event.key] = plan.event.id
        kept.append(plan)
    return kept


def judge(
    event: InboxEvent, triggers: Iterable[DueTrigger], make: MakeTemplate, *, max_depth: int = MAX_CHAIN_DEPTH
) -> Iterator[Start | Failure | None]:
    """What each enabled trigger of the event's type says, one at a time: a start, why there is none, or None when its filter leaves the
    event out. A chain of runs that is `max_depth` long goes on no more. Never raises: an unexpected error is a final failure of that trigger
    and event."""
    candidates = [trigger for trigger in triggers if event.tries == 0 or trigger.name in event.retry_triggers]
    if not candidates:
        return
    if event.type == RUN_END:
        yield from _judge_end(event, candidates, make, max_depth)
        return
    try:
        payload = parse_payload(event.payload)
    except TobanError as error:
        yield from (Failure(trigger, error.message, final=True) for trigger in candidates)
        return
    except Exception as error:
        yield from (_defect(trigger, error) for trigger in candidates)
        return
    facts = EventFacts(id=event.id, type=event.type, key=event.key, payload=payload)
    for trigger in candidates:
        try:
            yield _judge(facts, trigger, make)
        except Exception as error:
            yield _defect(trigger, error)


def _judge_end(
    event: InboxEvent, candidates: Sequence[DueTrigger], make: MakeTemplate, max_depth: int
) -> Iterator[Start | Failure | None]:
    run = event.ended
    if run is None:
        why = "the run that ended is gone: its retention has passed"
        yield from (Failure(trigger, why, final=True) for trigger in candidates)
        return
    facts = EventFacts(id=event.id, type=event.type, key="", payload=run.facts, of_run=run.facts)
    for trigger in candidates:
        try:
            ends = trigger.spec.on_run_end if trigger.spec is not None else None
            if trigger.spec is not None and (ends is None or not ends.fits(run, target=trigger.job)):
                yield None
                continue
            judged = _judge(facts, trigger, make)
            if isinstance(judged, Start) and run.depth >= max_depth:
                yield Failure(
                    trigger,
                    f"run {run.id} is number {run.depth + 1} of a chain of runs, which ends here; look for triggers that start each other, or "
                    "raise the setting max_chain_depth",
                    final=True,
                    cut=True,
                )
            else:
                yield replace(judged, ended=run) if isinstance(judged, Start) else judged
        except Exception as error:
            yield _defect(trigger, error)


def _judge(facts: EventFacts, trigger: DueTrigger, make: MakeTemplate) -> Start | Failure | None:
    if trigger.spec is None:
        return Failure(trigger, trigger.broken, final=False)
    if not matches(trigger.spec.filter, facts.payload):
        return None
    if not trigger.job_enabled:
        why = f"job {trigger.job!r} is disabled{trigger.job_disabled_why}; enable it and emit the event again"
        return Failure(trigger, why, final=True)
    try:
        return Start(trigger, make(trigger, fill(trigger.spec.payload, facts)))
    except TobanError as error:
        return Failure(trigger, error.message, final=False)


def _defect(trigger: DueTrigger, error: Exception) -> Failure:
    # In ASCII, since the text of an unexpected error may hold what PostgreSQL cannot store.
    why = ascii(f"{type(error).__name__}: {error}"[:200])
    message = f"unexpected: {why}; look into the leader's log for the cause, then emit the event again"
    return Failure(trigger, message, final=True, defect=error)


def plan_event(event: InboxEvent, judged: Iterable[Start | Failure | None]) -> EventPlan:
    """The plan of an event from what `judge` says of it."""
    said = list(judged)
    return _settle(
        event, [one for one in said if isinstance(one, Start)], [one for one in said if isinstance(one, Failure)]
    )


def _settle(event: InboxEvent, starts: Sequence[Start], failures: Sequence[Failure]) -> EventPlan:
    message = "; ".join(f"trigger {failure.trigger.name}: {failure.message}" for failure in failures)[:MAX_MESSAGE]
    started = bool(starts) or event.runs > 0
    retry = event.tries < EVENT_RETRIES and any(not failure.final for failure in failures)
    if retry:
        outcome = "retry"
    elif failures:
        outcome = "failed"
    else:
        outcome = "started" if started else "no_trigger"
    return EventPlan(
        event=event,
        outcome=outcome,
        starts=tuple(starts),
        failures=tuple(failures),
        message=message,
        delay_seconds=retry_seconds(event.tries + 1) if retry else 0.0,
        # One that failed for good and started nothing may be emitted again under its key.
        keeps_key=bool(event.key) and (outcome != "failed" or started),
    )


def first_starts(plan: EventPlan, count: int) -> EventPlan:
    """The plan with `count` of its starts: the other triggers are tried again at once, each once an event, and so are those that failed."""
    return replace(
        plan,
        outcome="retry",
        starts=plan.starts[:count],
        later=tuple(start.trigger for start in plan.starts[count:]),
        delay_seconds=0.0,
        keeps_key=bool(plan.event.key),
    )


def retry_seconds(tries: int) -> float:
    """How long to wait after the n-th try that failed."""
    return float(min(2**tries, 300))


def trigger_errors(plans: Sequence[EventPlan], settled: Mapping[int, str]) -> dict[tuple[int, int], str]:
    """What the triggers that were judged say of their last event, by (id, version): "" for those that had an error and work again.

    Only triggers whose error changes are named; `settled` are the events that were written, by id.
    """
    last: dict[tuple[int, int], tuple[DueTrigger, str]] = {}
    for plan in plans:
        if settled.get(plan.event.id, "duplicate") == "duplicate":
            continue
        for start in plan.starts:
            last[start.trigger.id, start.trigger.version] = (start.trigger, "")
        for failure in plan.failures:
            text = f"event {plan.event.id}: {failure.message}"[:MAX_MESSAGE]
            last[failure.trigger.id, failure.trigger.version] = (failure.trigger, text)
    return {key: error for key, (trigger, error) in last.items() if error != trigger.last_error}
