"""What a job finds in its slot's places is whole, or the job does not start."""

import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toban_executor.guard import work_dir as module
from toban_executor.guard.clock import pause, wall
from toban_executor.guard.spawn import SpawnError
from toban_executor.guard.work_dir import WorkDir


def made(tmp_path: Path) -> WorkDir:
    return WorkDir(directory=tmp_path / "work", payload=tmp_path / "payload.json", socket=tmp_path / "socket")


def test_a_disk_that_takes_half_of_a_payload_starts_no_job(tmp_path: Path) -> None:
    work_dir = made(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(SpawnError, match="No space left on device"):
            work_dir.prepare('{"day": "2026-11-21"}')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    work_dir.prepare('{"day": "2026-11-21"}')
    assert (tmp_path / "payload.json").read_text() == '{"day": "2026-11-21"}'


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkDir:
    """Of a slot whose directory was found unused, later than its last change."""
    work_dir = made(tmp_path)
    work_dir.prepare("")
    monkeypatch.setattr(module, "wall", lambda: wall() + 60)
    work_dir.clear()
    monkeypatch.undo()
    at, probe = (tmp_path / "work").stat().st_ctime_ns, tmp_path / "probe"
    while True:
        probe.unlink(missing_ok=True)
        probe.touch()
        if probe.stat().st_ctime_ns > at:
            return work_dir
        pause(0.001)


def _writes(folder: Path) -> None:
    (folder / "left").write_text("x")


def _comes_and_goes(folder: Path) -> None:
    (folder / "left").touch()
    (folder / "left").unlink()
    folder.chmod(0o777)


def _hides(folder: Path) -> None:
    (folder / "left").mkdir()
    os.utime(folder, ns=(1, 1))


def _links(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to("/")


USES: list[Callable[[Path], None]] = [_writes, _comes_and_goes, _hides, _links, Path.rmdir]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("fresh", [False, True])
def test_the_next_attempt_finds_nothing_of_the_one_before(
    settled: WorkDir, tmp_path: Path, use: Callable[[Path], None], fresh: bool
) -> None:
    work_dir, folder = made(tmp_path) if fresh else settled, tmp_path / "work"
    work_dir.prepare("")
    use(folder)
    work_dir.clear()
    work_dir.prepare("")
    assert list(folder.iterdir()) == []
    assert not folder.is_symlink()
    if not fresh:
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def ordinary() -> Iterator[Path]:
    """A folder of an ordinary user, and his rights."""
    user = os.geteuid()
    # Those of pytest are closed to others on the way.
    with tempfile.TemporaryDirectory() as folder:
        if user == 0:
            os.chown(folder, 60_999, -1)
            os.seteuid(60_999)
        yield Path(folder)
        os.seteuid(user)


def test_a_folder_that_a_job_has_closed_is_removed_by_an_ordinary_user(ordinary: Path) -> None:
    work_dir = made(ordinary)
    work_dir.prepare("")
    closed = ordinary / "work" / "closed"
    (closed / "below").mkdir(parents=True)
    (closed / "link").symlink_to(ordinary)
    (closed / "below").chmod(0)
    closed.chmod(0)
    work_dir.clear()
    work_dir.prepare("")
    assert list((ordinary / "work").iterdir()) == []


def test_a_directory_that_no_job_uses_stays(settled: WorkDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    before = folder.stat().st_ino
    monkeypatch.setattr(module.os, "listdir", pytest.fail)
    for _ in range(2):
        settled.prepare("")
        settled.clear()
    assert folder.stat().st_ino == before


def test_a_directory_that_was_removed_meanwhile_is_made_again(settled: WorkDir, tmp_path: Path) -> None:
    (tmp_path / "work").rmdir()
    settled.prepare("")
    assert (tmp_path / "work").is_dir()
