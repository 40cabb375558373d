"""One process acts on a state directory; an executor goes before a witness. Its secret stays the same."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters.state_dir import StateDir, instance_secret

HOLD = """
import sys
from pathlib import Path
from toban_executor.adapters.state_dir import StateDir

state = StateDir(Path(sys.argv[1]))
print(getattr(state, sys.argv[2])(), flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(state: Path, method: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that has locked the directory by this method, and what the method returned."""
    command = [sys.executable, "-c", HOLD, str(state), method]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().decode().strip()
        finally:
            process.kill()


def test_an_executor_ends_a_witness_and_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with holder(tmp_path, "lock_as_witness") as (witness, locked):
        assert locked == "True"
        StateDir(tmp_path).lock()
        assert witness.wait(10) == -signal.SIGTERM


def test_an_executor_does_not_take_the_place_of_another(tmp_path: Path) -> None:
    with holder(tmp_path, "lock") as (other, _):
        with pytest.raises(TobanError, match="belongs to a running executor") as refused:
            StateDir(tmp_path).lock()
        assert refused.value.code is ErrorCode.CONFIG_INVALID
        assert other.poll() is None


def test_a_witness_takes_nobodys_place(tmp_path: Path) -> None:
    mine = StateDir(tmp_path)
    mine.lock()
    with holder(tmp_path, "lock_as_witness") as (_, locked):
        assert locked == "False"
    assert mine.path == tmp_path


def test_the_secret_is_made_once_for_the_executors_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        secret = instance_secret(tmp_path)
    finally:
        os.umask(before)
    assert len(secret) == 64
    assert stat.S_IMODE((tmp_path / "instance-secret").stat().st_mode) == 0o600
    assert instance_secret(tmp_path) == secret
    other = instance_secret(tmp_path, fresh=True)
    assert other not in (secret, "") and instance_secret(tmp_path) == other


def test_a_damaged_secret_is_replaced(tmp_path: Path) -> None:
    """It proves nothing any more: the leases of earlier incarnations end by themselves."""
    (tmp_path / "instance-secret").write_text("short")
    assert len(instance_secret(tmp_path)) == 64


def test_a_disk_that_refuses_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(TobanError, match=r"instance-secret.*free its disk"):
        instance_secret(tmp_path / "missing")
