"""The timeline of many runs: lanes of cells, with how many runs ran in each cell by result."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.status_styles import style
from toban_admin_web.decide.timeline import lane_of
from toban_admin_web.decide.timeline_span import Span

HEIGHT = 32
SMALLEST = 2.0
"""Of a part of a bar: one failure among many is still seen."""
TONES = ("good", "neutral", "busy", "warn", "bad")
"""From the bottom up."""
MOST_LANES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How many runs ran in it at some time, by tone."""

    since: datetime
    until: datetime
    x: float
    width: float
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


def cell_picture(runs: Iterable[Run], *, by: str, span: Span, known: datetime, now: datetime) -> CellPicture:
    """Of all runs that ran after `known`. The lanes with the most runs by name, then the others as one."""
    edges = span.edges()
    first = bisect_left(edges, known)
    begin = edges[min(first, len(edges) - 1)]
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        name = lane_of(run, by, begin, span.until, now)
        if name:
            found[name].append(run)
    many = sorted(found, key=lambda name: (-len(found[name]), name))
    # A lane of others holds at least two.
    kept = many if len(many) <= MOST_LANES + 1 else many[:MOST_LANES]
    groups = [(name, 0, found[name]) for name in sorted(kept)]
    rest = many[len(kept) :]
    if rest:
        groups.append(("", len(rest), [run for name in rest for run in found[name]]))
    counted = [
        (name, others, list(_cells(members, edges, first, span, now)), members) for name, others, members in groups
    ]
    peak = max((_most(cells) for name, _, cells, _ in counted if name), default=0)
    lanes = [
        CellLane(
            name=name,
            others=others,
            cells=cells,
            # That many in one lane would flatten all others.
            paths=_paths(cells, peak if name else _most(cells)),
            most=_most(cells),
            counts=_tones(members),
        )
        for name, others, cells, members in counted
    ]
    return CellPicture(lanes=lanes, known=begin, peak=peak, counts=_tones(run for one in found.values() for run in one))


def _most(cells: Iterable[Cell]) -> int:
    return max((sum(cell.counts.values()) for cell in cells), default=0)


def _cells(runs: Iterable[Run], edges: Sequence[datetime], first: int, span: Span, now: datetime) -> Iterable[Cell]:
    """Those in which something ran: of each run only the first and the last one are looked at."""
    changes: dict[int, Counter[str]] = defaultdict(Counter)
    for run in runs:
        tone, end = style(run.state), run.finished_at or now
        begin = max(first, bisect_right(edges, run.started_at or end) - 1)
        changes[begin][tone] += 1
        # A run that ends at an edge was not in the cell behind it, unless it began there.
        changes[max(begin + 1, bisect_left(edges, end))][tone] -= 1
    counts: Counter[str] = Counter()
    for number, (since, until) in enumerate(pairwise(edges)):
        counts.update(changes.get(number, {}))
        here = {tone: counts[tone] for tone in TONES if counts[tone]}
        if here:
            x = span.x(since)
            yield Cell(since=since, until=until, x=x, width=round(span.x(until) - x, 1), counts=here)


def _paths(cells: Iterable[Cell], peak: int) -> dict[str, str]:
    paths: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        y, width = float(HEIGHT), round(max(1.0, cell.width - 1), 1)
        for tone, runs in cell.counts.items():
            height = round(max(SMALLEST, runs / peak * (HEIGHT - len(TONES) * SMALLEST)), 1)
            y = round(y - height, 1)
            paths[tone].append(f"M{cell.x:g} {y:g}h{width:g}v{height:g}h-{width:g}z")
    return {tone: "".join(paths[tone]) for tone in TONES if tone in paths}


def _tones(runs: Iterable[Run]) -> dict[str, int]:
    counts = Counter(style(run.state) for run in runs)
    return {tone: counts[tone] for tone in TONES if counts[tone]}


def possible_cuts(runs: Sequence[Run], span: Span, now: datetime) -> Sequence[datetime]:
    """Of the last runs that were read, numbers descending: times after which few others may have run, the first one leaves the most to see.

    Numbers do not follow times: runs of slots get theirs ahead, and some run for long. So what is behind such a time is asked for again.
    """
    starts = sorted(run.started_at for run in runs if run.started_at)
    end = min(span.until, now)
    middle = starts[len(starts) // 2] if starts else span.since
    cut = min(max(middle, span.since), end)
    return cut, cut + (end - cut) / 2
