"""Which ratios between two commits count as slower. Pure: numbers in, decision out.

The two measurements of a pair follow each other within seconds, so what else the machine does acts on both: only ratios within a pair
are compared. The interval of their median comes from order statistics (the sign test): it needs no assumption about the distribution,
and one outlier cannot move it beyond the other pairs. With 7 or 8 pairs it reaches from the smallest to the largest ratio.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

CONFIDENCE = 0.95
# The fewest pairs that a verdict is based on; below 6 no interval of this confidence exists at all.
MIN_PAIRS = 7
# A figure is slower than its base when the whole interval lies below this ratio.
BASE_LIMIT = 0.97
# The median against the reference commit may not fall below this, so that small losses do not add up over many commits.
REFERENCE_LIMIT = 0.95


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure. Those that do not decide are information: a rate and a latency depend on how busy the machine is."""

    name: str
    higher_is_better: bool
    decides: bool = False


CPU = Figure("cpu_ms_per_run", higher_is_better=False, decides=True)
RATE = Figure("runs_per_s", higher_is_better=True)
LATENCY = Figure("idle_latency_p50_ms", higher_is_better=False)
FIGURES = (CPU, RATE, LATENCY)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of two commits. A `ratio` above 1 is an improvement, whatever the figure."""

    figure: str
    against: str
    pairs: int
    new: float
    base: float
    ratio: float
    low: float
    high: float
    limit: float
    verdict: str

    @property
    def passed(self) -> bool:
        """False when this comparison fails the bench."""
        return self.verdict != "slower"

    def line(self) -> dict[str, object]:
        """The fields of its JSON line; `new` and `base` are medians."""
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(self).items()}
        return {"bench": "compare", **rounded}


def compare(figure: Figure, *, new: Sequence[float], base: Sequence[float], against: str) -> Comparison:
    """The comparison of paired measurements with `against`: base or reference.

    Raises ValueError for too few pairs and for a measurement that is not a positive number.
    """
    ratios = improvements(figure, new=new, base=base)
    low, high = median_interval(ratios)
    ratio = statistics.median(ratios)
    limit = REFERENCE_LIMIT if against == "reference" else BASE_LIMIT
    slower = ratio < limit if against == "reference" else high < limit
    verdict = "information" if not figure.decides else "slower" if slower else "passed"
    return Comparison(
        figure=figure.name,
        against=against,
        pairs=len(ratios),
        new=statistics.median(new),
        base=statistics.median(base),
        ratio=ratio,
        low=low,
        high=high,
        limit=limit,
        verdict=verdict,
    )


def compare_all(
    new: Mapping[str, Sequence[float]], base: Mapping[str, Sequence[float]], *, against: str
) -> list[Comparison]:
    """Every figure; both mappings hold the measurements by figure, in the order of the pairs."""
    return [compare(figure, new=new[figure.name], base=base[figure.name], against=against) for figure in FIGURES]


def improvements(figure: Figure, *, new: Sequence[float], base: Sequence[float]) -> list[float]:
    """The ratio of each pair, above 1 when the new commit is better."""
    if len(new) != len(base) or len(new) < MIN_PAIRS:
        raise ValueError(f"{figure.name}: {len(new)} and {len(base)} measurements are not at least {MIN_PAIRS} pairs")
    if not all(math.isfinite(value) and value > 0 for value in (*new, *base)):
        raise ValueError(f"{figure.name}: not every measurement is a positive number: {list(new)}, {list(base)}")
    return [n / b if figure.higher_is_better else b / n for n, b in zip(new, base, strict=True)]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics that holds the median with at least CONFIDENCE. Raises ValueError below 6 values."""
    ordered, count = sorted(values), len(values)
    # `outside`: probability that at most `rank` values lie on one given side of the median.
    rank, outside = -1, 0.0
    while (wider := outside + math.comb(count, rank + 1) / 2**count) <= (1 - CONFIDENCE) / 2:
        rank, outside = rank + 1, wider
    if rank < 0:
        raise ValueError(f"{count} values have no interval of {CONFIDENCE:.0%} for their median")
    return ordered[rank], ordered[count - 1 - rank]
