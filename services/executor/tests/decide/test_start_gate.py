"""When another attempt may begin."""

from toban_domain.outcome import AttemptKey
from toban_executor.decide.start_gate import BEGINNING_SECONDS, StartGate


def key(number: int) -> AttemptKey:
    return AttemptKey(number, number)


def test_the_next_one_waits_for_the_oldest() -> None:
    gate = StartGate(2)
    gate.began(key(1), 10.0)
    assert gate.wait(10.0) == 0.0
    gate.began(key(2), 10.001)
    assert 0.0 < gate.wait(10.002) <= BEGINNING_SECONDS
    assert gate.wait(10.0 + BEGINNING_SECONDS) == 0.0


def test_one_that_ends_lets_the_next_one_begin() -> None:
    gate = StartGate(1)
    gate.began(key(1), 10.0)
    gate.ended(key(1))
    gate.ended(key(7))
    assert gate.wait(10.0) == 0.0
