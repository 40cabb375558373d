"""What the end of the lease does with attempts, and what heartbeats carry of those that are frozen."""

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import FreezeTurn
from toban_executor.decide.lease_end import LEASE_REASON, FreezeNote, LeaseEndBook, killed_at_lease_end
from toban_executor.decide.models import AttemptEnd

KEY, OTHER = AttemptKey(1, 101), AttemptKey(2, 102)


def turn(on: bool, seconds: float = 0.0, at_ns: int = 5) -> FreezeTurn:
    return FreezeTurn(key=KEY, frozen=on, seconds=seconds, at_ns=at_ns)


def book() -> LeaseEndBook:
    made = LeaseEndBook()
    made.opened(KEY, "freeze")
    return made


def test_a_frozen_attempt_is_named_until_it_is_thawed_and_that_is_acknowledged() -> None:
    freezes = book()
    assert freezes.turned(turn(True), 100.0)
    assert freezes.frozen == {KEY}
    first = freezes.unacknowledged([KEY, OTHER], 103.0)
    assert first == {KEY: FreezeNote(turns=1, seconds=3.0, turned_ns=5)}
    freezes.acknowledge(first)
    assert freezes.unacknowledged([KEY], 104.0)[KEY].seconds == 4.0
    assert freezes.turned(turn(False, 5.0, 9), 105.0)
    last = freezes.unacknowledged([KEY], 200.0)
    assert last == {KEY: FreezeNote(turns=2, seconds=5.0, turned_ns=9)}
    assert freezes.unacknowledged([OTHER], 200.0) == {}
    freezes.acknowledge(last)
    assert freezes.unacknowledged([KEY], 200.0) == {}
    assert freezes.seconds(200.0) == {KEY: 5.0}


def test_a_turn_that_is_known_counts_once() -> None:
    """The guard and this process may both freeze the same tree."""
    freezes = book()
    assert freezes.turned(turn(True), 100.0)
    assert not freezes.turned(turn(True), 101.0)
    assert freezes.turned(turn(False), 110.0)
    assert not freezes.turned(turn(False, 10.5), 110.5)
    assert freezes.seconds(200.0) == {KEY: 10.5}
    assert freezes.unacknowledged([KEY], 200.0)[KEY].turns == 2


def test_several_freezes_add_up() -> None:
    freezes = book()
    for on, now in ((True, 10.0), (False, 15.0), (True, 20.0), (False, 22.0)):
        freezes.turned(turn(on), now)
    assert freezes.unacknowledged([KEY], 30.0) == {KEY: FreezeNote(turns=4, seconds=7.0, turned_ns=5)}


def test_the_limit_counts_for_one_freeze() -> None:
    freezes = book()
    for on, now in ((True, 10.0), (False, 15.0), (True, 20.0)):
        freezes.turned(turn(on), now)
    assert freezes.over(26.0, 7.0) == []
    assert freezes.over(27.0, 7.0) == [KEY]


def test_what_has_ended_is_forgotten() -> None:
    freezes = book()
    freezes.turned(turn(True), 1.0)
    freezes.closed(KEY)
    assert freezes.frozen == freezes.to_freeze == frozenset()
    assert not freezes.turned(turn(False), 2.0)


def test_the_end_of_the_lease_does_one_thing_with_each_attempt() -> None:
    made = book()
    made.opened(OTHER, "kill")
    third = AttemptKey(3, 103)
    made.opened(third, "continue")
    assert (made.to_freeze, made.to_kill, made.continuing) == ({KEY}, {OTHER}, {third})
    assert made.turned(FreezeTurn(key=OTHER, frozen=True, seconds=0.0, at_ns=1), 1.0), "a step of the wall clock"
    assert (made.frozen, made.to_kill) == ({OTHER}, {OTHER})
    made.closed(OTHER)
    assert (made.frozen, made.to_kill) == (frozenset(), frozenset())


def test_a_kill_in_place_of_the_guard_is_the_end_of_the_lease() -> None:
    end = killed_at_lease_end(AttemptEnd(key=KEY, pid=5, signal=9, finished_ns=3))
    assert end == AttemptEnd(key=KEY, pid=5, signal=9, finished_ns=3, cause="lease", reason=LEASE_REASON)


@pytest.mark.parametrize(
    "end",
    [
        AttemptEnd(key=KEY, exit_code=0),
        AttemptEnd(key=KEY, exit_code=1),
        AttemptEnd(key=KEY, signal=15),
        AttemptEnd(key=KEY, cause="timeout", reason="t", signal=9),
        AttemptEnd(key=KEY, cause="guard_lost", reason="g"),
    ],
)
def test_such_a_kill_changes_no_other_end(end: AttemptEnd) -> None:
    assert killed_at_lease_end(end) == end
