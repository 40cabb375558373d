"""Samples of CPU and memory: few enough for a page, whatever the length of the attempt, and CPU time never goes back."""

from datetime import UTC, datetime, timedelta

from toban_domain.outcome import AttemptKey
from toban_executor.decide.usage import MAX_SAMPLES, Measured, UsageBook

KEY = AttemptKey(7, 1)
BEGIN = datetime(2026, 11, 29, tzinfo=UTC)


def test_a_long_attempt_has_few_samples_and_its_latest() -> None:
    book = UsageBook()
    turns = 10 * MAX_SAMPLES + 3
    for turn in range(turns):
        book.add(KEY, Measured(float(turn), 1, 1), BEGIN + timedelta(seconds=5 * turn))
    times = [sample.at for sample in book.of(KEY)]
    assert MAX_SAMPLES / 2 <= len(times) <= MAX_SAMPLES + 1
    assert times == sorted(set(times)) and times[0] == BEGIN
    assert times[-1] == BEGIN + timedelta(seconds=5 * (turns - 1))


def test_cpu_time_of_processes_that_have_ended_stays() -> None:
    book = UsageBook()
    for cpu in (4.0, 6.0, 0.5, 1.5):
        book.add(KEY, Measured(cpu, 1, 1), BEGIN)
    assert [sample.cpu_seconds for sample in book.of(KEY)] == [4.0, 6.0, 6.0, 7.0]


def test_nothing_is_kept_of_an_attempt_that_has_ended() -> None:
    book = UsageBook()
    book.add(KEY, Measured(1.0, 1, 1), BEGIN)
    book.closed(KEY)
    assert book.of(KEY) == []
