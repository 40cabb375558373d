"""What `toban.current_job()` knows of its run; tests of the executor ask it on a real socket."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toban import Job

READS: dict[str, Callable[[Job], object]] = {
    "payload": lambda job: job.payload,
    "run_id": lambda job: job.run_id,
    "attempt": lambda job: job.attempt,
    "slot": lambda job: job.slot,
    "deadline": lambda job: job.deadline,
    "fence": lambda job: job.fence,
}


@pytest.mark.parametrize("name", READS)
def test_outside_of_a_run_it_has_no_values(name: str) -> None:
    with pytest.raises(LookupError, match=r"TOBAN_[A-Z_]+ is not set: Toban does not run this program"):
        READS[name](Job(environ={}))


def test_it_reads_the_variables_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a job that has no socket, too. What another thing than Toban has set is named."""
    (tmp_path / "payload.json").write_text('{"day": "2026-11-21", "zürich": [1]}', encoding="utf-8")
    monkeypatch.setenv("TOBAN_PAYLOAD_FILE", str(tmp_path / "payload.json"))
    monkeypatch.setenv("TOBAN_SLOT", "2026-11-21T03:00:00+00:00")
    monkeypatch.setenv("TOBAN_DEADLINE", "")
    monkeypatch.setenv("TOBAN_RUN_ID", "seven")
    job = Job()
    assert job.payload == {"day": "2026-11-21", "zürich": [1]} and job.payload is job.payload
    assert (job.slot, job.deadline) == (datetime(2026, 11, 21, 3, tzinfo=UTC), None)
    with pytest.raises(ValueError, match="TOBAN_RUN_ID is 'seven'"):
        _ = job.run_id


@pytest.mark.parametrize("text", ["", "{}"])
def test_a_run_without_parameters_has_an_empty_payload(tmp_path: Path, text: str) -> None:
    (tmp_path / "payload.json").write_text(text)
    assert Job(environ={"TOBAN_PAYLOAD_FILE": str(tmp_path / "payload.json")}).payload == {}


def test_a_container_has_its_payload_in_a_variable() -> None:
    assert Job(environ={"TOBAN_PAYLOAD": '{"n": 1}'}).payload == {"n": 1}
