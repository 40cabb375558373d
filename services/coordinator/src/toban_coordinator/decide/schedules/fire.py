"""Which slots of a due schedule become runs, and which are skipped with a named reason (docs/fencing.md 3.12)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice, takewhile

from toban_domain.concurrency import DEFAULT_SCOPE
from toban_domain.fire_plan import DueSchedule, FirePlan, RunTemplate, Skip
from toban_domain.job import JobSpec
from toban_domain.schedule import ScheduleSpec
from toban_schedule import Rule, ScheduleError

# A slot that is settled later than this counts as missed, and the schedule's catch_up decides about it, seconds.
MISSED_AFTER_SECONDS = 15.0
# Slots of one schedule that one plan looks at: a longer stretch is settled in several.
MAX_SLOTS = 1000
# Runs that one plan makes.
MAX_FIRES = 200
FIRE_RETRIES = 5
# By how much a zone's rules may turn out to be other than they were foreseen; laws that change an offset change it by an hour.
FORESEEN_WRONG = timedelta(hours=3)
INSTANT = timedelta(microseconds=1)


def template(
    spec: JobSpec, payload: str, schedule: DueSchedule | None = None, *, of: tuple[str, str] = DEFAULT_SCOPE
) -> RunTemplate:
    """What the runs of a schedule, or of an event for scope `of`, get from the definition; `payload` is the merged one, canonical JSON."""
    scope, scope_id = (schedule.spec.scope, schedule.spec.scope_id) if schedule else of
    group = spec.concurrency.group(
        payload, scope=scope, scope_id=scope_id, schedule_id=schedule.id if schedule else None
    )
    return RunTemplate(
        payload=payload,
        group=group,
        priority=spec.priority,
        max_attempts=spec.retry.max_attempts,
        max_lost=spec.max_lost,
        timeout_seconds=spec.timeout_seconds,
    )


def rule_of(schedule: DueSchedule) -> Rule:
    """The compiled rule of a stored schedule; raises ScheduleError when this version cannot read it, whatever is in the row."""
    if schedule.broken:
        raise ScheduleError("spec", schedule.broken)
    return compiled(schedule.spec)


def compiled(spec: ScheduleSpec) -> Rule:
    """The rule of a stored definition; raises ScheduleError when this version cannot read it."""
    try:
        return Rule.of(spec.rule)
    except ScheduleError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ScheduleError("rule", f"cannot be read ({type(error).__name__}: {error})", "apply it again") from None


def plan(
    schedule: DueSchedule,
    rule: Rule,
    made_from: RunTemplate,
    *,
    now: datetime,
    until: datetime,
    made: Collection[datetime] = (),
) -> FirePlan:
    """Settles the slots of `schedule` up to `until` (its next slot is one of them, as stored). Those in `made` have their runs (`plan_now`).

    Slots beyond the limits of one plan stay unsettled: the next plan goes on with them.
    """
    slots, following = _view(schedule, rule, until)
    if not schedule.job_enabled:
        skips = _stretches(slots, made, "disabled", f"job {schedule.spec.job} is disabled{schedule.job_disabled_why}")
        return FirePlan(schedule=schedule, template=made_from, fires=(), skips=skips, next_run_at=following)
    oldest = now - timedelta(seconds=MISSED_AFTER_SECONDS)
    unsettled = [slot for slot in slots if slot not in made]
    missed = sum(1 for slot in unsettled if slot < oldest)
    # Later missed slots that are not in view come into "the latest" before these.
    allowed = allowed_missed(schedule)
    beyond = _missed_from(following, rule, oldest, limit=allowed, made=made)
    dropped = max(0, min(missed, missed + beyond - allowed))
    skipped, wanted = unsettled[:dropped], unsettled[dropped:]
    left = [*wanted[MAX_FIRES:], *([following] if following is not None else [])]
    return FirePlan(
        schedule=schedule,
        template=made_from,
        fires=tuple(wanted[:MAX_FIRES]),
        skips=_stretches(
            [slot for slot in slots if skipped and slot <= skipped[-1]],
            made,
            "catch_up",
            f"missed; catch_up {schedule.spec.catch_up.policy}",
        ),
        next_run_at=left[0] if left else None,
        missed_before=oldest,
    )


def plan_now(
    schedule: DueSchedule,
    rule: Rule,
    made_from: RunTemplate,
    *,
    now: datetime,
    until: datetime,
    made: Collection[datetime] = (),
) -> FirePlan | None:
    """The slots that are due now of a schedule that has missed others before them, which stay for `plan`; None when none is due now."""
    first = rule.next_slot(now - timedelta(seconds=MISSED_AFTER_SECONDS) - INSTANT)
    if not schedule.job_enabled or first is None:
        return None
    due = (slot for slot in takewhile(lambda slot: slot <= until, _from(first, rule)) if slot not in made)
    slots = tuple(islice(due, MAX_FIRES))
    if not slots:
        return None
    return FirePlan(schedule=schedule, template=made_from, fires=slots, skips=(), next_run_at=schedule.next_run_at)


class Spread:
    """Counts the runs of each slot, over all schedules and turns: those beyond a batch start later (docs/schedules.md)."""

    def __init__(self) -> None:
        self._fired: dict[datetime, int] = {}

    def spread(self, plan: FirePlan, *, batch: int, delay_seconds: float, now: datetime) -> FirePlan:
        """The plan with the delays of its slots: run i of a slot starts i // batch × `delay_seconds` after it, or at once when that has passed."""
        if delay_seconds <= 0:
            self._fired.clear()
            return plan
        delays: dict[datetime, float] = {}
        for slot in plan.fires:
            place = self._fired.get(slot, 0)
            self._fired[slot] = place + 1
            delay = place // batch * delay_seconds
            if delay > 0 and slot + timedelta(seconds=delay) > now:
                delays[slot] = delay
        return replace(plan, delays=delays) if delays else plan

    def forget(self, before: datetime) -> None:
        """Slots that are long settled."""
        self._fired = {slot: count for slot, count in self._fired.items() if slot >= before}


def _view(schedule: DueSchedule, rule: Rule, until: datetime) -> tuple[list[datetime], datetime | None]:
    """The unsettled slots up to `until`, at most MAX_SLOTS, and the first one after them."""
    first = first_slot(schedule, rule)
    if first is None:
        return [], None
    slots: list[datetime] = []
    for slot in _from(first, rule):
        if slot > until or len(slots) >= MAX_SLOTS:
            return slots, slot
        slots.append(slot)
    return slots, None


def first_slot(schedule: DueSchedule, rule: Rule) -> datetime | None:
    """The next slot as it was stored; the rule's own one where the zone has got other rules since (a newer tzdata came with a release).

    Otherwise one local time would be fired twice: when the clocks were foreseen to show it, and when they do. One that they show earlier
    than foreseen, and that has not been fired, is fired at the stored time: late rather than never. Where it is unknown which of the two it
    is, the stored time is left out.
    """
    stored = schedule.next_run_at
    if stored is None or schedule.spec.rule.timezone == "UTC":
        return stored
    right = rule.next_slot(stored - INSTANT)
    if right == stored:
        return stored
    return stored if _passed_unfired(rule, stored, right, schedule.last_run_at) else right


def _passed_unfired(rule: Rule, stored: datetime, right: datetime | None, last: datetime | None) -> bool:
    """Whether the slot that was foreseen for `stored`, which is none now, has passed by then."""
    earlier = rule.next_slot(stored - FORESEEN_WRONG)
    if earlier is None or earlier >= stored:
        return False
    if last is not None and last < stored and rule.next_slot(last - INSTANT) == last:
        # The last run was at a slot of these rules too, so the one that was foreseen is the next one after it.
        following = rule.next_slot(last)
        if following is None or following >= earlier:
            return following is not None and following < stored
    # Slots without runs lie between, or the last one was foreseen wrong too: only a rule with slots far apart tells by which is near.
    return right is None or right - stored > FORESEEN_WRONG


def _from(first: datetime, rule: Rule) -> Iterator[datetime]:
    yield first
    yield from rule.slots_after(first)


def _missed_from(
    first: datetime | None, rule: Rule, oldest: datetime, *, limit: int, made: Collection[datetime]
) -> int:
    """How many slots from `first` on lie before `oldest` and have no run, counted up to `limit`."""
    if first is None:
        return 0
    found = (slot for slot in takewhile(lambda slot: slot < oldest, _from(first, rule)) if slot not in made)
    return sum(1 for _ in islice(found, limit))


def allowed_missed(schedule: DueSchedule) -> int:
    """How many missed slots get a run all the same."""
    catch_up = schedule.spec.catch_up
    return {"skip": 0, "one": 1, "all": catch_up.max}[catch_up.policy]


def ledger_skips(slots: Iterable[datetime], outcome: str, message: str) -> tuple[Skip, ...]:
    """The ledger row of consecutive slots that get no run; none for no slot."""
    all_slots = list(slots)
    if not all_slots:
        return ()
    return (Skip(first=all_slots[0], last=all_slots[-1], slots=len(all_slots), outcome=outcome, message=message),)


def _stretches(slots: Iterable[datetime], made: Collection[datetime], outcome: str, message: str) -> tuple[Skip, ...]:
    """A ledger row for each stretch of consecutive slots between those that have their runs."""
    stretches: list[list[datetime]] = [[]]
    for slot in slots:
        if slot in made:
            stretches.append([])
        else:
            stretches[-1].append(slot)
    return tuple(skip for stretch in stretches for skip in ledger_skips(stretch, outcome, message))


def cut(plan: FirePlan) -> tuple[FirePlan, ...]:
    """Two plans that settle the slots of `plan` one after the other; () when it cannot be cut."""
    if len(plan.fires) + len(plan.skips) < 2 or not plan.fires:
        return ()
    if plan.next_run_at == plan.schedule.next_run_at:
        # Slots of now before missed ones: neither part moves the schedule on.
        half = len(plan.fires) // 2
        return replace(plan, fires=plan.fires[:half]), replace(plan, fires=plan.fires[half:])
    # Skipped slots lie before those that get a run.
    first = 0 if plan.skips else len(plan.fires) // 2
    boundary = plan.fires[first]
    rest = replace(plan.schedule, next_run_at=boundary)
    return (
        replace(plan, fires=plan.fires[:first], next_run_at=boundary),
        replace(plan, schedule=rest, fires=plan.fires[first:], skips=()),
    )


def retry_seconds(failures: int) -> float:
    """How long to wait after the n-th fire that could not be made."""
    return float(min(2**failures, 300))
