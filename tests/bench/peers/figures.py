"""What is compared, and how measurements become ratios and a table. Pure: numbers in, numbers out."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from compare.verdict import Figure

FIGURES = (
    Figure("runs_per_s", higher_is_better=True),
    Figure("idle_latency_p50_ms", higher_is_better=False),
    Figure("idle_latency_standby_p50_ms", higher_is_better=False),
    Figure("noop_per_s", higher_is_better=True),
    Figure("due_s", higher_is_better=False),
)
# What one round measured of one side, by figure. A figure that a peer does not have is missing.
Measured = Mapping[str, float]


def check_effects(numbers: Iterable[int], count: int, *, of: str) -> None:
    """Each of `count` tasks, numbered from 0, had its effect exactly once. Raises ValueError."""
    seen = Counter(numbers)
    lost = [number for number in range(count) if number not in seen]
    doubled = [number for number, times in seen.items() if times > 1]
    foreign = [number for number in seen if not 0 <= number < count]
    if lost or doubled or foreign:
        raise ValueError(
            f"{of}: of {count} tasks {len(lost)} were lost {lost[:3]}, {len(doubled)} ran more than once {doubled[:3]}, "
            f"{len(foreign)} were not of this round {foreign[:3]}"
        )


def lines(peer: str, rounds: Sequence[tuple[Measured, Measured]]) -> list[dict[str, object]]:
    """A line for each figure that both sides, ours and theirs, have in every round. A ratio above 1 is in our favour."""
    return [
        line(peer, figure, [(ours[figure.name], theirs[figure.name]) for ours, theirs in rounds])
        for figure in FIGURES
        if rounds and all(figure.name in side for one in rounds for side in one)
    ]


def line(peer: str, figure: Figure, pairs: Sequence[tuple[float, float]]) -> dict[str, object]:
    """Medians over the rounds with their ratio, and the ratio of each round. Raises ValueError for what is no positive number."""
    if not all(value > 0 for pair in pairs for value in pair):
        raise ValueError(f"{peer}: {figure.name} is not positive in every round: {list(pairs)}")
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return {
        "bench": "peers",
        "peer": peer,
        "figure": figure.name,
        "ours": round(ours, 2),
        "theirs": round(theirs, 2),
        "ratio": round(_ratio(figure, ours, theirs), 2),
        "ratios": [round(_ratio(figure, *pair), 2) for pair in pairs],
    }


def _ratio(figure: Figure, ours: float, theirs: float) -> float:
    return ours / theirs if figure.higher_is_better else theirs / ours


def table(found: Sequence[Mapping[str, object]]) -> str:
    """For people: a row a peer and figure."""
    rows: list[list[str]] = [["peer", "figure", "ours", "theirs", "ratio", "of the rounds"]]
    for one in found:
        names = [str(one[name]) for name in ("peer", "figure", "ours", "theirs", "ratio")]
        ratios = one["ratios"]
        assert isinstance(ratios, list)
        rows.append([*names, " ".join(map(str, ratios))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
