"""The slots of the coming minutes as a map: a row for each hour, a column for each minute. Its table has the hours as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from toban_admin_web.decide.api_models import ComingLoad

HOURS, MINUTES = 24, 60
CELL, GAP = 14, 2
STEP = CELL + GAP
# Of the hour before each row.
LABEL = 44
# A minute with fewer slots is never shown as busy or crowded.
LEAST_BUSY, LEAST_CROWDED = 5, 10
# So many times the slots of the median minute.
BUSY_TIMES, CROWDED_TIMES = 2, 3
TONES = ("low", "busy", "crowded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A minute with slots; places are in units of the picture. `tone` is one of TONES."""

    at: datetime
    x: int
    slots: int
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An hour. `most` is its minute with the most slots, None when it has none."""

    at: datetime
    y: int
    cells: tuple[Cell, ...]
    slots: int
    most: Cell | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMap:
    """`busy` and `crowded`: from how many slots on a minute has that tone."""

    rows: tuple[Row, ...]
    busy: int
    crowded: int
    width: int = LABEL + MINUTES * STEP
    height: int = HOURS * STEP


def load_map(load: ComingLoad) -> LoadMap | None:
    """None without any slot."""
    if load.begin is None or not load.minutes:
        return None
    slots = {one.at: one.slots for one in load.minutes if one.at is not None}
    busy, crowded = thresholds(slots)
    rows = tuple(
        _row(load.begin + timedelta(hours=hour), hour * STEP, slots, busy=busy, crowded=crowded)
        for hour in range(HOURS)
    )
    return LoadMap(rows=rows, busy=busy, crowded=crowded)


def thresholds(slots: Mapping[datetime, int]) -> tuple[int, int]:
    """From how many slots on a minute is busy, and crowded: by the median of all minutes, since what every minute has crowds none."""
    counts = sorted(slots.values())
    without = HOURS * MINUTES - len(counts)
    middle = HOURS * MINUTES // 2
    median = counts[middle - without] if without <= middle else 0
    return max(LEAST_BUSY, BUSY_TIMES * median), max(LEAST_CROWDED, CROWDED_TIMES * median)


def _row(hour: datetime, y: int, slots: Mapping[datetime, int], *, busy: int, crowded: int) -> Row:
    times = [hour + timedelta(minutes=minute) for minute in range(MINUTES)]
    cells = tuple(
        Cell(at=at, x=LABEL + minute * STEP, slots=slots[at], tone=TONES[(slots[at] >= busy) + (slots[at] >= crowded)])
        for minute, at in enumerate(times)
        if at in slots
    )
    return Row(
        at=hour,
        y=y,
        cells=cells,
        slots=sum(cell.slots for cell in cells),
        most=max(cells, key=lambda cell: cell.slots, default=None),
    )
