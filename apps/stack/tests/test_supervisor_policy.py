"""When an ended process is started again: at once, then after doubled waits, without end."""

import itertools

import pytest

from toban_stack.supervisor.policy import Backoff, Exit, History, ended, span, started

BACKOFF = Backoff(first_seconds=1.0, longest_seconds=30.0, reset_seconds=60.0)
FAILED = Exit(code=78)


def lives(*runs: float) -> list[float]:
    """The wait after each of these run times."""
    now, waits = 100.0, []
    history = started(None, now=now)
    for seconds in runs:
        now += seconds
        history = ended(history, FAILED, now=now, backoff=BACKOFF)
        assert history.next_start is not None and not history.running
        waits.append(history.next_start - now)
        now = history.next_start
        history = started(history, now=now)
    assert history.restarts == len(runs)
    return waits


def test_the_waits_double_up_to_the_longest() -> None:
    assert lives(*[0.5] * 9) == [0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_it_never_gives_up() -> None:
    assert set(lives(*[0.0] * 5000)[6:]) == {30.0}


@pytest.mark.parametrize(("seconds", "wait"), [(59.9, 4.0), (60.0, 0.0), (3600.0, 0.0)])
def test_a_long_run_resets_the_wait(seconds: float, wait: float) -> None:
    assert lives(1, 1, 1, seconds, 1)[3] == wait


def test_the_first_start_is_no_restart() -> None:
    first = started(None, now=5.0)
    assert first == History(since=5.0) and first.running


def test_a_start_that_fails_waits_as_after_an_end() -> None:
    history = ended(started(None, now=0.0), Exit(code=1), now=100.0, backoff=BACKOFF)
    waits = []
    for _ in range(4):
        assert history.next_start is not None
        now = history.next_start
        history = ended(history, Exit(detail="no space left on device"), now=now, backoff=BACKOFF)
        assert history.next_start is not None
        waits.append(history.next_start - now)
    assert waits == [1, 2, 4, 8] and history.restarts == 0
    assert str(history.last_exit) == "could not be started"


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (Exit(code=78, ran_seconds=0.34), "exit code 78 after 0.3 s"),
        (Exit(code=0, ran_seconds=59), "exit code 0 after 59 s"),
        (Exit(signal=9, ran_seconds=7200), "killed by SIGKILL after 2 h"),
        (Exit(signal=250), "killed by signal 250 after 0.0 s"),
        (Exit(ran_seconds=130), "exit code unknown after 2 min"),
    ],
)
def test_how_it_ended_for_people(cause: Exit, text: str) -> None:
    assert str(cause) == text


def test_spans_grow_in_their_unit() -> None:
    texts = [span(seconds) for seconds in (0.04, 9.94, 9.96, 119.4, 120, 7199, 7200, 100_000)]
    assert texts == ["0.0 s", "9.9 s", "10 s", "119 s", "2 min", "119 min", "2 h", "27 h"]


def test_every_wait_is_within_its_limits() -> None:
    for failures, first in itertools.product(range(200), (0.0, 0.1, 1.0, 40.0)):
        assert 0 <= Backoff(first_seconds=first).wait(failures) <= 30.0
