"""What an earlier incarnation left is only proven to be gone where its process ids mean something (docs/fencing.md 3.8)."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard import record
from toban_executor.guard.leftovers import settle
from toban_executor.guard.tree import start_time


@pytest.mark.parametrize(
    ("differs", "proven"),
    [({"pid_namespace": "pid:[1]"}, False), ({"boot_id": "another"}, True), ({"master_start": 1}, False)],
    ids=["another namespace", "another boot", "a master that died without its testimony, and no cgroup"],
)
def test_what_proves_the_end_of_earlier_guards(tmp_path: Path, differs: dict[str, Any], proven: bool) -> None:
    """In another namespace the same numbers name other processes; after another boot all are gone; an empty look proves nothing."""
    with subprocess.Popen(["sleep", "60"]) as somebody:
        try:
            here = {"boot_id": record.boot_id(), "pid_namespace": record.pid_namespace()}
            here |= {"master": somebody.pid, "master_start": start_time(somebody.pid), **differs}
            record.write(tmp_path / "guards", record.GuardRecord(incarnation="i", cgroup="", **here))
            assert settle(tmp_path) == {"i": proven}
            assert somebody.poll() is None
        finally:
            somebody.kill()
