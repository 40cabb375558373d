"""The A/B bench fails for what is slower, not for noise, and its exit code follows the figures that decide."""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import bench_compare
from bench_cpu import CLASSES
from compare import verdict
from compare.rounds import Sample

pytestmark = pytest.mark.long
CPU, RATE = verdict.CPU, verdict.RATE
CALM = [0.99, 1.01, 0.98, 1.0, 1.02, 1.005, 0.995]


def judged(ratios: Sequence[float], *, against: str = "base") -> verdict.Comparison:
    """The verdict on CPU when each pair has this ratio; the base takes 4 ms in every second pair, 6 in the others."""
    base = [4.0 if number % 2 else 6.0 for number in range(len(ratios))]
    new = [one / ratio for one, ratio in zip(base, ratios, strict=True)]
    return verdict.compare(CPU, new=new, base=base, against=against)


@pytest.mark.parametrize(
    ("ratios", "verdict_of_base"),
    [
        (CALM, "passed"),
        ([ratio * 0.9 for ratio in CALM], "slower"),
        ([0.969] * 7, "slower"),
        ([0.97] * 7, "passed"),
        # One pair that is not slower leaves the interval open with 7 pairs, whatever the median.
        ([0.9] * 6 + [1.0], "passed"),
        ([0.6, 1.4, 0.7, 1.3, 0.8, 1.2, 0.95], "passed"),
        ([1.2] * 7, "passed"),
        # With 9 pairs one outlier does not count.
        ([0.9] * 8 + [1.5], "slower"),
    ],
)
def test_the_interval_below_the_limit_fails(ratios: Sequence[float], verdict_of_base: str) -> None:
    assert judged(ratios).verdict == verdict_of_base


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.951] * 7, "passed"),
        ([0.949] * 7, "slower"),
        ([0.94] * 4 + [1.0] * 3, "slower"),
        ([0.94] * 3 + [1.0] * 4, "passed"),
    ],
)
def test_the_median_against_the_reference_may_not_fall_below_its_limit(ratios: Sequence[float], expected: str) -> None:
    assert judged(ratios, against="reference").verdict == expected


def test_more_cpu_is_worse_and_more_runs_are_better() -> None:
    low, high = [100.0] * 7, [125.0] * 7
    assert verdict.compare(CPU, new=high, base=low, against="base").ratio == pytest.approx(0.8)
    assert verdict.compare(RATE, new=high, base=low, against="base").ratio == pytest.approx(1.25)
    assert verdict.compare(verdict.LATENCY, new=low, base=high, against="base").ratio == pytest.approx(1.25)


def test_ratios_are_taken_within_pairs() -> None:
    # The machine became three times as slow, for both.
    new, base = [3.0, 3.0, 3.0, 3.0, 9.0, 9.0, 9.0], [3.0, 3.0, 3.0, 9.0, 9.0, 9.0, 9.0]
    assert verdict.improvements(CPU, new=new, base=base) == [1, 1, 1, 3, 1, 1, 1]


@pytest.mark.parametrize(("count", "rank"), [(6, 0), (7, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5)])
def test_the_interval_is_that_of_the_sign_test(count: int, rank: int) -> None:
    values = [float(number) for number in range(count)]
    random.Random(1).shuffle(values)
    assert verdict.median_interval(values) == (rank, count - 1 - rank)


@pytest.mark.parametrize(
    ("new", "base"),
    [([1.0] * 6, [1.0] * 6), ([1.0] * 7, [1.0] * 8), ([0.0] * 7, [1.0] * 7), ([1.0] * 7, [float("nan")] * 7)],
)
def test_what_cannot_be_judged_is_an_error(new: Sequence[float], base: Sequence[float]) -> None:
    with pytest.raises(ValueError, match="cpu_ms_per_run"):
        verdict.compare(CPU, new=new, base=base, against="base")


@pytest.mark.parametrize(("true_ratio", "noise", "least", "most"), [(1.0, 0.05, 0, 8), (0.9, 0.02, 390, 400)])
def test_noise_passes_and_a_loss_is_found(true_ratio: float, noise: float, least: int, most: int) -> None:
    """Of 400 comparisons with noise of this standard deviation so many fail."""
    chance = random.Random(7)
    drawn = [[true_ratio * chance.gauss(1, noise) for _ in range(7)] for _ in range(400)]
    assert least <= sum(not judged(ratios).passed for ratios in drawn) <= most


def samples(cpu: Sequence[float], rate: float = 400.0) -> list[Sample]:
    """Measurements with these CPU milliseconds a run."""
    classes = dict.fromkeys(CLASSES, 0.5)
    return [Sample({CPU.name: one, RATE.name: rate, verdict.LATENCY.name: 8.0}, classes) for one in cpu]


def planted(cpu_ratio: float, rate: float = 400.0) -> list[Sample]:
    """Measurements that are `cpu_ratio` times as good as the base's 4 ms."""
    return samples([4.0 / cpu_ratio / one for one in CALM], rate)


def test_the_exit_code_follows_the_cpu_and_each_figure_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    base = samples([4.0] * 7)
    assert bench_compare.report({"new": planted(1.0), "base": base, "reference": base}) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["figure"], line.get("against")) for line in lines] == [
        *((figure.name, against) for against in ("base", "reference") for figure in verdict.FIGURES),
        ("cpu_ms_per_run_by_class", None),
    ]
    assert bench_compare.report({"new": planted(0.9), "base": base, "reference": samples([9.0] * 7)}) == 1
    # A rate of half as many runs decides nothing: it is information.
    assert bench_compare.report({"new": planted(1.0, rate=200.0), "base": base, "reference": base}) == 0
    # Small losses that have added up: as good as the base, but not as the reference.
    assert bench_compare.report({"new": planted(1.0), "base": base, "reference": samples([3.7] * 7)}) == 1
    # The base is the reference.
    assert bench_compare.report({"new": planted(0.96), "base": base}) == 0
    assert bench_compare.report({"new": planted(0.94), "base": samples([4.0] * 7)}) == 1
