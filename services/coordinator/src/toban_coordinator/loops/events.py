"""Loop `events`: what is in the inbox becomes runs, a duplicate, or a kept failure; each event once, in one fenced transaction.

Only an event whose runs do not fit into one is written in several: it stays in the inbox with the triggers that are left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from toban_coordinator.app.adaptive_batch import AdaptiveBatch, write_alone
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.metrics import submitted
from toban_coordinator.app.notifications import event_metrics as metrics
from toban_coordinator.app.notifications.event_templates import Templates
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.decide.notifications import events as decide
from toban_coordinator.decide.notifications.event_batching import Room, front, rows_of
from toban_coordinator.loops.term_loop import LoopDeps, TurnOutcome
from toban_coordinator.store.definitions import triggers
from toban_coordinator.store.notifications import events
from toban_coordinator.store.pending_work import Agenda
from toban_coordinator.store.runs import run_ends
from toban_domain.concurrency import DEFAULT_SCOPE
from toban_domain.errors import FencedOut
from toban_domain.event import DueTrigger, EventPlan, Failure, InboxEvent, Start
from toban_domain.job import JobSpec
from toban_domain.run_end import RUN_END, type_of
from toban_observability.logs import get_logger
from toban_runtime.cooperative_yield import CooperativeYield
from toban_store.errors import DidNotHappen, Refused, StoreError, Unsuitable
from toban_store.tx import Tx, autocommit, fenced_tx

# Events of one turn.
READ_EVENTS = 500
# What one fenced transaction writes at most, since it has to stay far below its bound: rows (events and runs), and bytes of payloads.
WRITE_ROWS = 500
WRITE_BYTES = 2_000_000
# After the database refused an event, or could not write it in time: it waits and lets the others pass, and is never given up.
REFUSED_SECONDS = 30.0
# What changed under a plan is planned again after this.
LEFT_SECONDS = 0.05
INBOX_SECONDS = 5.0
INBOX_LIMIT = 100_000
_log = get_logger(__name__)


class _Turn:
    """What one turn has read. `held` grows with what it writes."""

    def __init__(self, *, now: datetime, days: int, max_depth: int) -> None:
        self.now = now
        self.days = days
        self.max_depth = max_depth
        self.triggers: dict[str, list[DueTrigger]] = {}
        self.specs: Mapping[tuple[int, int], JobSpec] = {}
        self.held: dict[tuple[str, str], int] = {}
        self.left = 0


class Events:
    """Reads the inbox, plans event by event, writes in fenced batches; an event that cannot be written is postponed."""

    def __init__(self, *, deps: LoopDeps, definitions: DefinitionCache, payloads: PayloadValidator) -> None:
        self._deps = deps
        self._definitions = definitions
        self._payloads = payloads
        # Its size counts rows; bytes shrink with it.
        self._batch = AdaptiveBatch(WRITE_ROWS)
        self._measured_at: float | None = None

    async def run_once(self) -> TurnOutcome:
        """One turn."""
        settings = await self._deps.settings.get()
        turn = _Turn(
            now=self._deps.server_time.now(),
            days=settings.whole("dedupe_days"),
            max_depth=settings.whole("max_chain_depth"),
        )
        due = await self._read(turn)
        pause = CooperativeYield(self._deps.clock)
        part: list[EventPlan] = []
        room = Room(WRITE_ROWS, WRITE_BYTES)
        for event in due:
            plan = await self._plan(turn, event, pause)
            if not room.takes(plan):
                await self._write(turn, part)
                part, room = [], Room(WRITE_ROWS, WRITE_BYTES)
                room.takes(plan)
            part.append(plan)
        await self._write(turn, part)
        await self._measure()
        if len(due) >= READ_EVENTS:
            return TurnOutcome(len(due), 0.0)
        return TurnOutcome(len(due), LEFT_SECONDS if turn.left else None)

    def idle_turn(self, agenda: Agenda) -> TurnOutcome | None:
        """A turn without work; None when the inbox has something, or is to be measured."""
        return None if agenda.events or self._measure_due() else TurnOutcome()

    async def _read(self, turn: _Turn) -> list[InboxEvent]:
        async with autocommit(self._deps.pool) as t:
            due = await events.due(t, limit=READ_EVENTS)
            due, types = await _with_ends(t, due)
            found = await triggers.of_types(t, types)
            turn.held = await events.keys(t, {(event.type, event.key) for event in due if event.key}, days=turn.days)
            versions = {(trigger.definition_id, trigger.definition_version) for trigger in found}
            turn.specs = await self._definitions.find(t, versions) if versions else {}
        for trigger in found:
            turn.triggers.setdefault(trigger.event_type, []).append(trigger)
        return due

    async def _plan(self, turn: _Turn, event: InboxEvent, pause: CooperativeYield) -> EventPlan:
        """Outside of any transaction, since large payloads take a while."""
        await pause.yield_if_due()
        known = decide.duplicate(event, turn.held)
        if known is not None:
            return known
        scope = (event.ended.scope, event.ended.scope_id) if event.ended else DEFAULT_SCOPE
        templates = Templates(self._definitions, self._payloads, turn.specs, scope=scope)
        judged = await self._judge(turn, event, templates, pause)
        if await templates.check_pending():
            judged = await self._judge(turn, event, templates, pause)
        return decide.plan_event(event, judged)

    async def _judge(
        self, turn: _Turn, event: InboxEvent, templates: Templates, pause: CooperativeYield
    ) -> list[Start | Failure | None]:
        judged: list[Start | Failure | None] = []
        waiting = list(turn.triggers.get(event.type, ()))
        if event.ended is not None:
            waiting += turn.triggers.get(type_of(event.ended.job), ())
        for one in decide.judge(event, waiting, templates.make, max_depth=turn.max_depth):
            judged.append(one)
            await pause.yield_if_due()
        return judged

    async def _write(self, turn: _Turn, plans: Sequence[EventPlan]) -> None:
        """Writes in parts as large as fitted lately; one that fails is cut, down to one run of one event; that event steps aside then."""
        done = 0
        while done < len(plans):
            share = self._batch.size / WRITE_ROWS
            part = front(plans[done:], Room(self._batch.size, int(WRITE_BYTES * share)))
            try:
                await self._process(turn, decide.first_of_keys(part, turn.held))
            except DidNotHappen as error:
                self._batch.too_long(rows_of(part))
                if len(part) > 1 or len(part[0].starts) > 1:
                    continue
                await self._write_alone(turn, part[0], error)
            else:
                if done + len(part) < len(plans):
                    self._batch.fitted(self._batch.size)
            done += len(part)

    async def _write_alone(self, turn: _Turn, plan: EventPlan, error: DidNotHappen) -> None:
        """One event that could not be written steps aside if it is to blame. Raises TooLong when this process is."""

        async def write(one: Sequence[EventPlan]) -> None:
            await self._process(turn, one)

        if not isinstance(error, Refused | Unsuitable):
            again = await write_alone(plan, write, faults=DidNotHappen)
            if again is None:
                return
            error = again
        await self._aside(plan.event, error)

    async def _process(self, turn: _Turn, plans: Sequence[EventPlan]) -> None:
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            settled = await events.process(t, plans, days=turn.days)
            if cut := _failed_ends(plans, settled):
                await run_ends.note_failed(t, cut)
        for plan in plans:
            if plan.keeps_key and settled.get(plan.event.id, "duplicate") != "duplicate":
                turn.held[plan.event.type, plan.event.key] = plan.event.id
        turn.left += len(plans) - len(settled) + sum(bool(plan.later) for plan in plans)
        _count(plans, settled, turn.now)
        await self._note(plans, settled)

    async def _aside(self, event: InboxEvent, error: StoreError) -> None:
        _log.error(
            "event cannot be written; postponed",
            event_id=event.id,
            error=error.message,
            next_try_seconds=REFUSED_SECONDS,
        )
        async with fenced_tx(self._deps.pool, self._deps.term) as t:
            await events.postpone(t, event, error.message[: decide.MAX_MESSAGE], delay_seconds=REFUSED_SECONDS)

    async def _note(self, plans: Sequence[EventPlan], settled: Mapping[int, str]) -> None:
        """The last error of each trigger, for its page: a hint, which may be lost."""
        _log_failures(plans, settled)
        errors = decide.trigger_errors(plans, settled)
        if not errors:
            return
        try:
            async with fenced_tx(self._deps.pool, self._deps.term) as t:
                await triggers.note_errors(t, errors)
        except FencedOut:
            raise
        except StoreError as error:
            _log.warning("cannot store the last errors of triggers", error=error.message)

    def _measure_due(self) -> bool:
        return self._measured_at is None or self._deps.clock.monotonic() - self._measured_at >= INBOX_SECONDS

    async def _measure(self) -> None:
        if not self._measure_due():
            return
        self._measured_at = self._deps.clock.monotonic()
        async with autocommit(self._deps.pool) as t:
            found = await events.inbox(t, limit=INBOX_LIMIT)
        metrics.inbox.set(found.events)
        metrics.oldest.set(found.oldest)


async def _with_ends(t: Tx, due: Sequence[InboxEvent]) -> tuple[list[InboxEvent], list[str]]:
    """The events, ends of runs with their runs, and the types under which their triggers are stored."""
    numbers = {event.id: _run_of(event) for event in due if event.type == RUN_END}
    runs = await run_ends.ended(t, sorted(set(numbers.values())))
    filled = [replace(event, ended=runs.get(numbers[event.id])) if event.id in numbers else event for event in due]
    return filled, sorted({event.type for event in due} | {type_of(run.job) for run in runs.values()})


def _run_of(event: InboxEvent) -> int:
    number = json.loads(event.payload).get("run")
    return number if isinstance(number, int) else 0


def _failed_ends(plans: Sequence[EventPlan], settled: Mapping[int, str]) -> list[tuple[int, str]]:
    """Runs at whose ends a trigger has failed for good, and why."""
    return [
        (plan.event.ended.id, plan.message)
        for plan in plans
        if plan.event.ended is not None and settled.get(plan.event.id) == "failed"
    ]


def _count(plans: Sequence[EventPlan], settled: Mapping[int, str], now: datetime) -> None:
    for plan in plans:
        outcome = settled.get(plan.event.id)
        if outcome is None:
            continue
        metrics.processed.labels(outcome).inc()
        if plan.event.tries == 0 and plan.event.created_by.startswith("sql:"):
            metrics.received.labels("sql").inc()
        if outcome != "retry":
            metrics.lag.observe(max(0.0, (now - plan.event.created_at).total_seconds()))
        if outcome != "duplicate":
            metrics.started.inc(len(plan.starts))
            submitted.labels("event").inc(len(plan.starts))
            metrics.failures.inc(len(plan.failures))
            metrics.chains_cut.inc(sum(failure.cut for failure in plan.failures))
            if any(failure.defect for failure in plan.failures):
                metrics.defects.inc()


def _log_failures(plans: Sequence[EventPlan], settled: Mapping[int, str]) -> None:
    """One line a trigger and outcome, however many events it failed for."""
    told: dict[tuple[str, str], list[tuple[EventPlan, Failure]]] = {}
    for plan in plans:
        outcome = settled.get(plan.event.id, "")
        if outcome == "failed" or (outcome == "retry" and plan.event.tries == 0):
            for failure in plan.failures:
                told.setdefault((failure.trigger.name, outcome), []).append((plan, failure))
    for (name, outcome), failed in told.items():
        plan, failure = failed[-1]
        _log.error(
            "a trigger cannot start its job",
            trigger=name,
            events=len(failed),
            event_id=plan.event.id,
            error=failure.message,
            attempt=plan.event.tries + 1,
            next_try_seconds=plan.delay_seconds if outcome == "retry" else None,
            exc_info=failure.defect,
        )
