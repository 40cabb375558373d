"""CPU and memory of a run as lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from toban_admin_web.decide.api_models import UsageSample
from toban_admin_web.decide.usage_chart import usage_chart

BEGIN = datetime(2026, 11, 29, tzinfo=UTC)


def sample(seconds: float, cpu: float, mib: int) -> UsageSample:
    return UsageSample(at=BEGIN + timedelta(seconds=seconds), cpu_seconds=cpu, memory_bytes=mib << 20, processes=3)


def test_cores_are_the_cpu_time_between_two_samples() -> None:
    chart = usage_chart([sample(0, 1.0, 10), sample(5, 11.0, 40), sample(15, 16.0, 20)])
    assert chart is not None and chart.cpu is not None
    assert (chart.cpu.now, chart.cpu.peak, chart.cpu_seconds, chart.processes) == (0.5, 2.0, 16.0, 3)
    assert (chart.memory.now, chart.memory.peak) == (20, 40)
    assert chart.memory.path == "M0.0 20.5L100.0 1.0L300.0 14.0"


def test_one_sample_has_memory_alone() -> None:
    chart = usage_chart([sample(0, 1.0, 10)])
    assert chart is not None and chart.cpu is None and chart.memory.now == 10
    assert usage_chart([]) is None
