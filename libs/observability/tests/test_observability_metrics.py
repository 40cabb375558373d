"""Gauges that only the leader exposes, values filled in on each scrape, and health in the metrics."""

from __future__ import annotations

import itertools

import pytest

from toban_observability import health, metrics

_numbers = itertools.count(1)


@pytest.fixture
def leader_gauge() -> metrics.LeaderGauge:
    return metrics.leader_gauge(f"toban_test_leader_{next(_numbers)}", "For this test.", ("reason",))


def shown(name: str) -> list[str]:
    return [line for line in metrics.exposition().decode().splitlines() if line.startswith(name)]


def test_a_leaders_gauge_disappears_when_its_term_ends(leader_gauge: metrics.LeaderGauge) -> None:
    name = next(iter(leader_gauge.describe())).name
    assert shown(name) == []
    leader_gauge.set_all({("a",): 1, ("b",): 2})
    leader_gauge.set(3, "b")
    assert shown(name) == [f'{name}{{reason="a"}} 1.0', f'{name}{{reason="b"}} 3.0']
    assert metrics.samples(name) == [({"reason": "a"}, 1), ({"reason": "b"}, 3)]
    leader_gauge.set_all({("c",): 1})
    assert shown(name) == [f'{name}{{reason="c"}} 1.0']
    metrics.clear_leader_gauges()
    assert shown(name) == []


def test_a_filler_is_called_before_each_exposition() -> None:
    name = f"toban_test_filled_{next(_numbers)}"
    gauge, values = metrics.gauge(name, "For this test."), itertools.count(1)
    metrics.on_scrape(lambda: gauge.set(next(values)))
    assert [shown(name), shown(name)] == [[f"{name} 1.0"], [f"{name} 2.0"]]


@pytest.mark.parametrize(("status", "state"), [("ok", 0), ("warning", 1), ("error", 2)])
def test_health_is_a_number(status: health.Status, state: int) -> None:
    health.set_health_metrics(health.report({"fine": health.Check("ok"), "this": health.Check(status)}))
    assert metrics.samples("toban_health_state") == [({}, state)]
    checks = {labels["check"]: value for labels, value in metrics.samples("toban_health_check_state")}
    assert (checks["fine"], checks["this"]) == (0, state)


def test_a_check_that_is_not_made_any_more_is_not_shown() -> None:
    health.set_health_metrics(health.report({"health": health.Check("error")}))
    health.set_health_metrics(health.report({"fine": health.Check("ok")}))
    assert metrics.samples("toban_health_check_state") == [({"check": "fine"}, 0)]


def test_counters_and_histograms_show_no_birthday() -> None:
    number = next(_numbers)
    metrics.counter(f"toban_test_{number}_total", "For this test.").inc()
    metrics.histogram(f"toban_test_{number}_seconds", "For this test.").observe(1)
    assert f"toban_test_{number}_total 1.0" in metrics.exposition().decode()
    assert "_created" not in metrics.exposition().decode()


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ValueError, match="must start with toban_"):
        metrics.leader_gauge("runs", "Runs.")
