"""Outcomes until a coordinator has stored them: refused ones are kept, named and sent again."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind
from toban_executor.app.outcome_reporter import GATHER_SECONDS, QUEUED_GATHER_SECONDS, OutcomeReporter
from toban_executor.decide.models import Report, StartOrder, StepOrder
from toban_executor.ports.coordinator import ReportAnswer
from toban_executor.ports.journal import JournalContents
from toban_testing.clock import FakeClock

END = Outcome(kind=OutcomeKind.SUCCEEDED, exit_code=0, finished_at=datetime(2026, 11, 21, tzinfo=UTC))


def report(number: int) -> Report:
    return Report(key=AttemptKey(number, 100 + number), seq=2, outcome=END)


class World:
    """A coordinator that refuses what it is told to refuse, leaves out what it cannot store, and a journal that notes."""

    def __init__(self, *, enough: int = 1, orders: int = 0) -> None:
        self.refused: dict[AttemptKey, str] = {}
        self.left_out: set[AttemptKey] = set()
        self.calls: list[list[AttemptKey]] = []
        self.dropped: list[tuple[AttemptKey, int]] = []
        self.kept: list[tuple[Report, str]] = []
        self.wakes = 0
        me: Any = self
        self.clock = FakeClock()
        self.orders = orders
        self.reporter = OutcomeReporter(
            gateway=me,
            journal=me,
            wake=self.wake,
            enough=enough,
            orders=lambda: self.orders,
            clock=self.clock,
        )

    def wake(self) -> None:
        self.wakes += 1

    async def report(self, reports: Sequence[Report]) -> list[ReportAnswer]:
        self.calls.append([one.key for one in reports])
        return [
            ReportAnswer(
                one.key, one.seq, "refused" if one.key in self.refused else "accepted", self.refused.get(one.key, "")
            )
            for one in reports
            if one.key not in self.left_out
        ]

    def drop_reports(self, done: Sequence[tuple[AttemptKey, int]]) -> None:
        self.dropped += done

    def quarantine_report(self, report: Report, message: str) -> None:
        self.kept.append((report, message))


@pytest.fixture
def world() -> World:
    return World()


async def test_a_refused_outcome_is_kept_named_and_sent_again(world: World) -> None:
    good, bad = report(1), report(2)
    world.refused[bad.key] = "no partition"
    for one in (bad, good):
        world.reporter.add(one)
    assert world.reporter.unanswered == [bad.key, good.key]
    await world.reporter.run_once()
    assert (world.dropped, world.kept) == ([(good.key, 2)], [(bad, "no partition")])
    assert (world.reporter.unanswered, world.reporter.quarantined) == ([], {bad.key: "no partition"})
    assert world.reporter.pending == 0
    world.reporter.resend()
    await world.reporter.run_once()
    # Still refused: still named as quarantined, also while it was on its way.
    assert world.reporter.quarantined == {bad.key: "no partition"}
    world.refused.clear()
    world.reporter.resend()
    assert (world.reporter.unanswered, world.reporter.quarantined) == ([], {bad.key: "no partition"})
    await world.reporter.run_once()
    assert (world.reporter.quarantined, world.dropped[-1]) == ({}, (bad.key, 2))


async def test_what_earlier_processes_left_in_quarantine_is_sent_at_once(world: World) -> None:
    old, refused = report(1), report(2)
    world.reporter.restore(JournalContents(reports=(old,), quarantined=((refused, "no"),)))
    assert (world.reporter.unanswered, world.reporter.quarantined) == ([old.key], {refused.key: "no"})
    await world.reporter.run_once()
    assert world.calls == [[old.key, refused.key]] and world.reporter.quarantined == {}


async def test_a_report_without_an_answer_stays_and_does_not_spin(world: World) -> None:
    stuck, next_one = report(1), report(2)
    world.left_out.add(stuck.key)
    world.reporter.add(stuck)
    world.reporter.add(next_one)
    wakes = world.wakes
    assert await world.reporter.run_once() == 1
    assert world.reporter.unanswered == [stuck.key] and world.wakes == wakes
    world.left_out.clear()
    await world.reporter.run_once()
    assert world.reporter.pending == 0


async def test_a_refused_start_is_not_kept(world: World) -> None:
    start = Report(key=AttemptKey(1, 101), seq=1, started_ns=5)
    world.refused[start.key] = "no"
    world.reporter.add(start)
    await world.reporter.run_once()
    assert (world.reporter.pending, world.kept, world.reporter.quarantined) == (0, [], {})


async def test_after_a_call_with_several_reports_the_next_one_waits_for_more() -> None:
    world = World(enough=3)
    for number in (1, 2):
        world.reporter.add(report(number))
    await world.reporter.run_once()
    world.reporter.add(report(3))
    call = asyncio.create_task(world.reporter.run_once())
    await world.clock.advance(GATHER_SECONDS / 2)
    world.reporter.add(report(4))
    assert len(world.calls) == 1
    await world.clock.advance(GATHER_SECONDS / 2)
    assert await call == 2 and world.clock.sleepers == 0
    world.reporter.add(report(8))
    call = asyncio.create_task(world.reporter.run_once())
    await asyncio.sleep(0)
    for number in (9, 10):
        world.reporter.add(report(number))
    assert await call == 3, "the third one ends the wait"
    # Enough of them wait for nothing more.
    for number in (5, 6, 7):
        world.reporter.add(report(number))
    assert await world.reporter.run_once() == 3


async def test_reports_wait_longer_while_as_many_orders_wait_for_slots() -> None:
    world = World(enough=2, orders=5)
    for number in (1, 2):
        world.reporter.add(report(number))
    await world.reporter.run_once()
    for number in (3, 4, 5):
        world.reporter.add(report(number))
    call = asyncio.create_task(world.reporter.run_once())
    await world.clock.advance(GATHER_SECONDS)
    assert not call.done()
    await world.clock.advance(QUEUED_GATHER_SECONDS - GATHER_SECONDS)
    assert await call == 3
    world.reporter.add(report(6))
    call = asyncio.create_task(world.reporter.run_once())
    await asyncio.sleep(0)
    world.orders = 2
    world.reporter.add(report(7))
    assert await call == 2, "few orders are left: free slots may wait for the next ones soon"


async def test_reports_that_come_one_at_a_time_wait_for_nothing() -> None:
    world = World(enough=3)
    for number in (1, 2, 3):
        world.reporter.add(report(number))
        assert await world.reporter.run_once() == 1
    # Nothing to report ends the waiting, too.
    for number in (4, 5):
        world.reporter.add(report(number))
    await world.reporter.run_once()
    await world.reporter.run_once()
    world.reporter.add(report(6))
    assert await world.reporter.run_once() == 1


def order(key: AttemptKey, *types: str) -> StartOrder:
    return StartOrder(key=key, steps=tuple(StepOrder(type=one, argv=("x",)) for one in types))


def held_never(report: Report) -> None:
    raise AssertionError(report)


async def test_an_outcome_that_is_held_is_named_and_reported_when_it_is_released(world: World) -> None:
    held: list[Report] = []
    world.reporter.hold = held.append
    one = report(1)
    world.reporter.opened(order(one.key, "http", "kubernetes"))
    world.reporter.add(one)
    assert (await world.reporter.run_once(), held, world.calls) == (0, [one], [])
    assert (world.reporter.unanswered, world.reporter.pending, world.reporter.first(9)) == ([one.key], 1, [])
    world.reporter.release(one.key)
    await world.reporter.run_once()
    assert (world.calls, world.reporter.pending) == ([[one.key]], 0)


async def test_outcomes_of_other_steps_are_not_held(world: World) -> None:
    """The executor runs http steps, too: they leave nothing in the cluster."""
    world.reporter.hold = held_never
    one = report(1)
    world.reporter.opened(order(one.key, "http"))
    world.reporter.add(one)
    await world.reporter.run_once()
    assert (world.calls, world.reporter.pending) == ([[one.key]], 0)


@pytest.mark.parametrize("inherited", [False, True])
async def test_outcomes_of_an_earlier_process_are_held_where_it_has_left_something(
    world: World, inherited: bool
) -> None:
    held: list[Report] = []
    world.reporter.hold, world.reporter.holds_inherited = held.append, inherited
    contents: Any = SimpleNamespace(reports=[report(1)], quarantined=[])
    world.reporter.restore(contents)
    assert (len(held), len(world.reporter.first(9)), world.reporter.pending) == (inherited, not inherited, 1)
