"""When another attempt may start, and in which order."""

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import StartOrder
from toban_executor.decide.start_queue import STARTING_SECONDS, WAIT_SECONDS, QueuedStarts, StartThrottle


def key(number: int) -> AttemptKey:
    return AttemptKey(number, number)


def test_the_next_one_waits_for_the_oldest() -> None:
    throttle = StartThrottle(2)
    throttle.started(key(1), 10.0)
    assert throttle.wait(10.0) == 0.0
    throttle.started(key(2), 10.001)
    assert 0.0 < throttle.wait(10.002) <= STARTING_SECONDS
    assert throttle.wait(10.0 + STARTING_SECONDS) == 0.0


def test_one_that_ends_lets_the_next_one_start() -> None:
    throttle = StartThrottle(1)
    throttle.started(key(1), 10.0)
    throttle.ended(key(1))
    throttle.ended(key(7))
    assert throttle.wait(10.0) == 0.0


def test_the_highest_priority_starts_first_and_then_the_oldest() -> None:
    queue = QueuedStarts()
    for number, priority in ((1, 0), (2, 7), (3, 0), (4, -1)):
        queue.add(StartOrder(key=key(number), priority=priority), 10.0 + number)
    assert queue.take(key(3)) is not None and queue.take(key(3)) is None
    assert [order.key for order in queue.take_all()] == [key(2), key(1), key(4)]
    assert queue.take_next() is None and queue.next_overdue is None


def test_what_has_waited_for_too_long_is_taken_whatever_its_priority() -> None:
    queue = QueuedStarts()
    queue.add(StartOrder(key=key(1), priority=0), 10.0)
    queue.add(StartOrder(key=key(2), priority=7), 11.0)
    assert queue.next_overdue == 10.0 + WAIT_SECONDS
    assert [order.key for order in queue.take_overdue(10.0 + WAIT_SECONDS)] == [key(1)]
    assert len(queue) == 1
