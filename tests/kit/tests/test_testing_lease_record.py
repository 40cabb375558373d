"""What the record of leases and jobs finds."""

from pathlib import Path

import pytest

from toban_testing.lease_record import LeaseRecord, check_alone, check_undisturbed


@pytest.fixture
def record(tmp_path: Path) -> LeaseRecord:
    made = LeaseRecord(tmp_path / "record")
    # Held from 10 to 20, and again from 30 to 40.
    (made.leases_folder / "a").write_text("10.0 15.0\n14.0 20.0\n30.0 40.0\n")
    return made


def write(record: LeaseRecord, *lines: str) -> None:
    (record.folder / "run-1").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("at", "late"), [(12.0, 0.0), (19.99, 0.0), (20.5, 0.5), (29.0, 9.0), (30.0, 0.0), (42.0, 2.0)]
)
def test_a_stamp_outside_every_lease_is_late(record: LeaseRecord, at: float, late: float) -> None:
    write(record, "begin 5 a 77 11.00", f"tick 5 a 77 {at:.2f}")
    assert record.lateness(1) == pytest.approx(late)


def test_a_job_of_an_executor_without_any_lease_is_late_for_ever(record: LeaseRecord) -> None:
    write(record, "begin 5 b 77 11.00")
    assert record.lateness(1) == float("inf")


@pytest.mark.parametrize(
    "lines",
    [
        ("begin 5 a 77 11.00", "overlap 6 a 78 12.00"),
        ("begin 5 a 77 11.00", "begin 6 a 78 12.00", "tick 5 a 77 12.01"),
        ("begin 5 a 77 11.00", "begin 5 a 78 12.00"),
    ],
)
def test_two_executions_are_found(record: LeaseRecord, lines: tuple[str, ...]) -> None:
    write(record, *lines)
    with pytest.raises(AssertionError):
        check_alone(record.lines(1))


def test_attempts_one_after_the_other_are_fine_but_not_undisturbed(record: LeaseRecord) -> None:
    write(record, "begin 5 a 77 11.00", "tick 5 a 77 11.10", "begin 6 a 78 12.00", "end 6 a 78 12.10")
    check_alone(record.lines(1))
    with pytest.raises(AssertionError):
        check_undisturbed(record.lines(1))
    write(record, "begin 5 a 77 11.00", "tick 5 a 77 11.10", "end 5 a 77 12.10")
    check_undisturbed(record.lines(1))
