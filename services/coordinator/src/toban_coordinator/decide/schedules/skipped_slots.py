"""Slots that pass without runs, as one stretch of the ledger: of a pause that may have lasted a year, or of what cannot be made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from toban_domain.fire_plan import DueSchedule, FirePlan, RunTemplate, Skip
from toban_schedule import Rule, count_slots

TICK = timedelta(microseconds=1)
# A stretch up to this long is counted in no time, even one of every second.
SHORT = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The slots of one version of a schedule from its stored slot `first` to `until`, counted beforehand."""

    version: int
    first: datetime
    until: datetime
    last: datetime
    slots: int

    def holds(self, schedule: DueSchedule, until: datetime) -> bool:
        """Whether this is the beginning of what `schedule` lets pass up to `until`."""
        return (self.version, self.first) == (schedule.version, schedule.next_run_at) and self.until <= until


def count(schedule: DueSchedule, rule: Rule, until: datetime) -> Counted:
    """Counts from the stored slot, which there is, to `until`; a long stretch takes seconds."""
    assert schedule.next_run_at is not None
    found = count_slots(rule, schedule.next_run_at - TICK, until)
    last, slots = (found.last, found.slots) if found else (schedule.next_run_at, 1)
    return Counted(version=schedule.version, first=schedule.next_run_at, until=until, last=last, slots=slots)


def has_to_be_counted(schedule: DueSchedule, rule: Rule | None, counted: Counted | None, until: datetime) -> bool:
    """Whether `pass_by` would take long: the span is long, and its first part is not counted yet."""
    if rule is None or schedule.next_run_at is None or until - schedule.next_run_at <= SHORT:
        return False
    return counted is None or not counted.holds(schedule, until)


def pass_by(
    schedule: DueSchedule,
    rule: Rule | None,
    *,
    until: datetime,
    outcome: str,
    message: str,
    counted: Counted | None = None,
) -> FirePlan:
    """Settles every slot of `schedule` up to `until` as one stretch without runs, however many they are; nothing is due without a stored slot.

    Without a `rule` (one that cannot be read any more) only the stored slot is known, and there is none after it. `counted` saves the
    count of the beginning when it holds.
    """
    first = schedule.next_run_at
    skips: tuple[Skip, ...] = ()
    if first is not None and first <= until:
        last, slots = _passed(schedule, rule, counted, first, until)
        skips = (Skip(first=first, last=last, slots=slots, outcome=outcome, message=message),)
    following = rule.next_slot(until) if rule is not None else None
    return FirePlan(schedule=schedule, template=RunTemplate(payload="{}"), fires=(), skips=skips, next_run_at=following)


def _passed(
    schedule: DueSchedule, rule: Rule | None, counted: Counted | None, first: datetime, until: datetime
) -> tuple[datetime, int]:
    """The last slot up to `until`, and how many there are from `first` on."""
    if rule is None:
        return first, 1
    if counted is None or not counted.holds(schedule, until):
        counted = count(schedule, rule, until)
    rest = count_slots(rule, counted.until, until) if counted.until < until else None
    return (rest.last, counted.slots + rest.slots) if rest else (counted.last, counted.slots)
