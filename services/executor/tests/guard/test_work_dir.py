"""What a job finds in its slot's places is whole, or the job does not start."""

import resource
from pathlib import Path

import pytest

from toban_executor.guard.spawn import SpawnError
from toban_executor.guard.work_dir import WorkDir


def test_a_disk_that_takes_half_of_a_payload_starts_no_job(tmp_path: Path) -> None:
    work_dir = WorkDir(directory=tmp_path / "work", payload=tmp_path / "payload.json", socket=tmp_path / "socket")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(SpawnError, match="No space left on device"):
            work_dir.prepare('{"day": "2026-11-21"}')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    work_dir.prepare('{"day": "2026-11-21"}')
    assert (tmp_path / "payload.json").read_text() == '{"day": "2026-11-21"}'
