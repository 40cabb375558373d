"""The timeline of many runs: lanes of cells, with how many runs ran in each cell by result."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_admin_web.decide.api_models import RunCounts, RunGroup
from toban_admin_web.decide.status_styles import style
from toban_admin_web.decide.timeline_span import Span

HEIGHT = 32
SMALLEST = 2.0
"""Of a part of a bar: one failure among many is still seen."""
SECONDS = "%Y-%m-%dT%H:%M:%S"
"""Times in addresses."""
TONES = ("good", "neutral", "busy", "warn", "bad")
"""From the bottom up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Where the cells of one interval are, in all lanes; `text` and `query` name it to people and in addresses."""

    since: datetime
    until: datetime
    x: float
    width: float
    text: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How many runs ran in it at some time, by tone."""

    column: Column
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLane:
    """`paths`: tone → path; `counts`: the runs by tone, each once; `most` of a cell.

    `name` "": all other lanes, of which there are `others`; its paths have a scale of their own.
    """

    name: str
    cells: Sequence[Cell]
    paths: Mapping[str, str]
    most: int
    counts: Mapping[str, int]
    others: int = 0

    @property
    def runs(self) -> int:
        """How many ran."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPicture:
    """`known`: the time from which on it is whole, an edge of a cell; `peak`: most runs of a cell of a lane with a name."""

    lanes: Sequence[CellLane]
    known: datetime
    peak: int
    counts: Mapping[str, int]

    @property
    def runs(self) -> int:
        """How many ran."""
        return sum(self.counts.values())


def count_text(counts: Mapping[str, int], words: Mapping[str, str]) -> str:
    """Counts by tone with the words of the tones, in which | stands for a number."""
    return ", ".join(words[tone].replace("|", f"{number:,}") for tone, number in counts.items())


def cell_picture(found: RunCounts, span: Span) -> CellPicture:
    """Of what the coordinators have counted by the cells of the span. Lanes by name, then the others as one."""
    groups = sorted(found.groups, key=lambda group: (not group.name, group.name))
    columns: dict[datetime, Column] = {}
    counted = [(group, list(_cells(group, span, columns))) for group in groups]
    peak = max((_most(cells) for group, cells in counted if group.name), default=0)
    lanes = [
        CellLane(
            name=group.name,
            others=group.others,
            cells=cells,
            # That many in one lane would flatten all others.
            paths=_paths(cells, peak if group.name else _most(cells)),
            most=_most(cells),
            counts=_tones(group.runs),
        )
        for group, cells in counted
    ]
    whole: Counter[str] = Counter()
    for lane in lanes:
        whole.update(lane.counts)
    known = max(found.since or span.since, span.since)
    return CellPicture(lanes=lanes, known=known, peak=peak, counts={tone: whole[tone] for tone in TONES if whole[tone]})


def _most(cells: Iterable[Cell]) -> int:
    return max((sum(cell.counts.values()) for cell in cells), default=0)


def _cells(group: RunGroup, span: Span, columns: dict[datetime, Column]) -> Iterable[Cell]:
    for one in group.intervals:
        if one.at is not None:
            if one.at not in columns:
                columns[one.at] = _column(one.at, span)
            yield Cell(column=columns[one.at], counts=_tones(one.runs))


def _column(at: datetime, span: Span) -> Column:
    since, until = max(at, span.since), min(at + span.cell, span.until)
    x = span.x(since)
    return Column(
        since=since,
        until=until,
        x=x,
        width=round(span.x(until) - x, 1),
        text=span.text(since, until),
        query=f"since={since:{SECONDS}}&until={until:{SECONDS}}",
    )


def _paths(cells: Iterable[Cell], peak: int) -> dict[str, str]:
    paths: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        y, width = float(HEIGHT), round(max(1.0, cell.column.width - 1), 1)
        for tone, runs in cell.counts.items():
            height = round(max(SMALLEST, runs / peak * (HEIGHT - len(TONES) * SMALLEST)), 1)
            y = round(y - height, 1)
            paths[tone].append(f"M{cell.column.x:g} {y:g}h{width:g}v{height:g}h-{width:g}z")
    return {tone: "".join(paths[tone]) for tone in TONES if tone in paths}


def _tones(runs: Mapping[str, int]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for state, number in runs.items():
        counts[style(state)] += number
    return {tone: counts[tone] for tone in TONES if counts[tone]}
