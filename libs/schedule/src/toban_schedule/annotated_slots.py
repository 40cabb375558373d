"""Slots with the rule of DST that made each of them: what `schedule next` shows."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from toban_schedule.localtime import Images
from toban_schedule.rule import TICK, At, Rule


@dataclass(frozen=True, slots=True)
class AnnotatedSlot:
    """A slot, its local time (with the zone of the rule; UTC for intervals), and which rule acted, "" when none had to."""

    at: datetime
    local: datetime
    note: str = ""


def annotated_slots(rule: Rule, after: datetime, limit: int) -> list[AnnotatedSlot]:
    """The first `limit` slots strictly after `after`, each with its note."""
    slots = list(islice(rule.slots_after(after), limit))
    if not isinstance(rule.source, At):
        return [AnnotatedSlot(slot, slot) for slot in slots]
    zone = rule.source.clock.zone
    begin = after.astimezone(UTC) if rule.start is None else max(after.astimezone(UTC), rule.start - TICK)
    notes = _notes(rule.source, begin, slots) if slots else {}
    return [AnnotatedSlot(slot, slot.astimezone(zone), notes.get(slot, "")) for slot in slots]


def _notes(at: At, after: datetime, slots: Sequence[datetime]) -> dict[datetime, str]:
    """The notes of those slots that have one: a single pass over the local times from `after` to the last slot."""
    plain: set[datetime] = set()
    moved: dict[datetime, list[datetime]] = defaultdict(list)
    left_out: dict[datetime, list[datetime]] = defaultdict(list)
    folds: dict[datetime, str] = {}
    for wall in at.cron.walls(at.clock.wall_before(after)):
        images = at.clock.images(wall)
        if images.floor > slots[-1]:
            break
        if images.plain:
            plain.add(images.floor)
        elif at.clock.exists(wall):
            folds |= _folds(at, wall, images)
        elif images.instants:
            moved[images.instants[0]].append(wall)
        elif after < (end := at.clock.gap_end(wall)) <= slots[-1]:
            left_out[slots[bisect_left(slots, end)]].append(wall)
    notes = dict(folds)
    for slot, walls in moved.items():
        notes[slot] = _moved(at, slot, walls, merged=slot in plain)
    for slot, walls in left_out.items():
        before = _gap(walls, slot.astimezone(at.clock.zone)) + ", left out"
        notes[slot] = f"{before}; {notes[slot]}" if slot in notes else before
    return notes


def _folds(at: At, wall: datetime, images: Images) -> dict[datetime, str]:
    first = at.clock.first_of(wall)
    clock = _clock(wall)
    return {instant: f"fold: {'first' if instant == first else 'second'} of two {clock}" for instant in images.instants}


def _moved(at: At, slot: datetime, walls: Sequence[datetime], *, merged: bool) -> str:
    local = slot.astimezone(at.clock.zone)
    where = f"shifted to {_clock(local)}" if at.clock.gap == "shift" else f"run after the gap, at {_clock(local)}"
    return f"{_gap(walls, local)}, {where}" + (", which is a slot anyway" if merged else "")


def _gap(walls: Sequence[datetime], local: datetime) -> str:
    """ "gap: 02:30 does not exist", with dates where the local times are of another day than the slot."""
    dated = any(wall.date() != local.date() for wall in walls)
    return f"gap: {clocks(walls, dated=dated)} {'does' if len(walls) == 1 else 'do'} not exist"


def clocks(walls: Sequence[datetime], *, dated: bool = False) -> str:
    """Local times in words; of more than three the first, the last and how many."""
    names = [_clock(wall, dated=dated) for wall in walls]
    return f"{names[0]} to {names[-1]} ({len(names)} times)" if len(names) > 3 else " and ".join(names)


def _clock(time: datetime, *, dated: bool = False) -> str:
    clock = f"{time:%H:%M:%S}" if time.second else f"{time:%H:%M}"
    return f"{time:%Y-%m-%d} {clock}" if dated else clock
