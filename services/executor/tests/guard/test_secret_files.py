"""Secrets of a slot: in memory, for its user alone, gone with the attempt."""

import stat
from pathlib import Path

import pytest

from toban_domain.secret import SecretFile
from toban_executor.guard.secret_files import SecretFiles, in_memory
from toban_executor.guard.spawn import SpawnError

ONE = SecretFile(file="db", file_env="PGPASSFILE", value=b"hunter22\0\xff\n")


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    """As if the folder of the test were a tmpfs."""
    table = tmp_path / "mounts"
    table.write_text(f"/dev/x / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n")
    return table


def test_files_are_private_and_gone_after_the_attempt(tmp_path: Path, mounts: Path) -> None:
    files = SecretFiles(tmp_path / "slot.secrets", mounts=mounts)
    files.write([ONE])
    folder = tmp_path / "slot.secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "db").stat().st_mode) == 0o400
    assert (folder / "db").read_bytes() == ONE.value
    assert files.environment([ONE]) == {"PGPASSFILE": str(folder / "db"), "TOBAN_SECRETS_DIR": str(folder)}
    files.clear()
    assert not folder.exists()
    files.write([])
    assert not folder.exists()
    assert files.environment([]) == {}


def test_a_disk_gets_no_secret(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"tmpfs / tmpfs rw 0 0\n/dev/x {tmp_path} ext4 rw 0 0\n")
    with pytest.raises(SpawnError, match="written to memory only"):
        SecretFiles(tmp_path / "slot.secrets", mounts=table).write([ONE])
    assert list(tmp_path.iterdir()) == [table]


def test_what_a_killed_supervisor_left_is_removed(tmp_path: Path, mounts: Path) -> None:
    folder = tmp_path / "slot.secrets"
    SecretFiles(folder, mounts=mounts).write([ONE])
    SecretFiles(folder, mounts=mounts)
    assert not folder.exists()


def test_the_last_mount_at_the_longest_path_counts(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    inner = tmp_path / "inner folder"
    inner.mkdir()
    table.write_text(f"/dev/x / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n")
    assert in_memory(inner, table)
    escaped = str(inner).replace(" ", "\\040")
    table.write_text(table.read_text() + f"/dev/y {escaped} ext4 rw 0 0\n")
    assert not in_memory(inner, table)
    assert in_memory(tmp_path, table)
