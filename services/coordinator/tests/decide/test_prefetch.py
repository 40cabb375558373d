"""How many orders executors get beyond their slots, by how quickly their runs end."""

from datetime import UTC, datetime

from toban_coordinator.decide.placement.prefetch import PASSED_OVER_SECONDS, SPAN_SECONDS, PassedOver, Prefetch
from toban_domain.lease import ExecutorState
from toban_domain.placement import ExecutorLoad


def executor(held: int) -> ExecutorLoad:
    return ExecutorLoad(
        incarnation="i1",
        worker_id=1,
        instance="e1",
        address="h:1",
        state=ExecutorState.ON,
        slots=16,
        held=held,
        load=0.0,
        labels={},
        last_heartbeat_at=datetime(2030, 1, 1, tzinfo=UTC),
    )


class Fleet:
    """One executor of 16 slots that always holds as many runs as it has slots when it is read."""

    def __init__(self) -> None:
        self.prefetch = Prefetch()
        self.now = 100.0

    def end(self, runs: int, *, after: float) -> ExecutorLoad:
        """So many runs end and others are sent in their place."""
        self.now += after
        depths = self.prefetch.depths(self.now, 1)
        [load] = self.prefetch.read([executor(16 - runs)], depths, self.now)
        self.prefetch.sent("i1", runs)
        return load

    def steady(self, ends_a_second: float, *, seconds: float = 1.0) -> int:
        step = 0.02
        for _ in range(round(seconds / step)):
            load = self.end(round(ends_a_second * step), after=step)
        return load.queue


def test_an_executor_gets_what_it_starts_within_moments() -> None:
    fleet = Fleet()
    assert fleet.end(0, after=0.0).queue == 0, "nothing is known yet"
    assert fleet.steady(50) == 14
    assert fleet.steady(1000) == 16, "at most one a slot"
    assert fleet.prefetch.depths(fleet.now, 2) == {"i1": 32}
    assert fleet.prefetch.depths(fleet.now, 0) == {}
    assert fleet.prefetch.depths(fleet.now, 1, frozenset({"i1"})) == {}


def test_jobs_that_take_long_get_nothing_ahead() -> None:
    fleet = Fleet()
    assert fleet.steady(1000) == 16
    assert fleet.steady(0, seconds=2 * SPAN_SECONDS + 0.1) == 0


def test_jobs_that_end_together_promise_nothing() -> None:
    fleet = Fleet()
    for _ in range(10):
        assert fleet.end(16, after=0.5).queue == 0
        assert fleet.end(0, after=0.5).queue == 0


def test_a_long_time_without_a_read_promises_nothing() -> None:
    fleet = Fleet()
    fleet.steady(1000)
    assert fleet.end(16, after=30.0).queue == 0


def test_executors_that_are_gone_are_forgotten() -> None:
    fleet = Fleet()
    fleet.steady(1000)
    fleet.prefetch.read([], {}, fleet.now)
    assert fleet.prefetch.depths(fleet.now, 1) == {}


def test_runs_that_need_slots_are_passed_over_for_a_while_only() -> None:
    passed_over: PassedOver[str] = PassedOver()
    assert passed_over.for_long(["a"], 10.0) == []
    assert passed_over.for_long(["a"], 10.5) == []
    assert passed_over.for_long(["a", "b"], 10.0 + PASSED_OVER_SECONDS) == ["a"]
    assert passed_over.for_long([], 10.5 + PASSED_OVER_SECONDS) == []
    assert passed_over.for_long(["a"], 10.9 + PASSED_OVER_SECONDS) == ["a"], "it got a slot, and waits again soon"
    assert passed_over.for_long(["a"], 13.0 + PASSED_OVER_SECONDS) == [], "none of them waited for a while"
