"""Servers in unusual places: user namespaces denied, long paths, programs missing."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from toban_stack import processes
from toban_stack.errors import ProcessFailed, StackError
from toban_stack.home import MAX_SOCKET_FOLDER_BYTES, Home
from toban_stack.records import Records
from toban_stack.servers import Servers, binaries, run_as
from toban_stack.wait import wait_until

Starter = Callable[[Path, str], tuple[Records, str]]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts one server in a folder; ends what it started."""
    started: list[Records] = []
    homes: list[Home] = []

    def starter(root: Path, name: str) -> tuple[Records, str]:
        home = Home(root)
        home.create()
        homes.append(home)
        records = Records(path=home.state_file)
        started.append(records)
        endpoints = Servers(home=home, records=records, environment={}, durable=False).start(name)
        return records, endpoints.database_url

    yield starter
    for records in started:
        for record in records.all():
            processes.stop(record)
    for home in homes:
        shutil.rmtree(home.sockets, ignore_errors=True)


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that any user may pass through, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="toban-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user to become")
def test_postgres_drops_to_another_user_where_namespaces_are_denied(
    passable: Path, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_as, "REFUSED", 0)  # the probe of a namespace then counts as refused
    records, url = start(passable / "home", "postgres")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("toban",)
    assert Path(f"/proc/{records.all()[0].pid}").stat().st_uid != 0


def test_no_user_gets_in_without_the_password(start: Starter, tmp_path: Path) -> None:
    _, url = start(tmp_path / "home", "postgres")
    stranger = url.replace(url.split(":")[2].split("@")[0], "guess")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stranger)


def test_a_long_path_keeps_its_sockets_elsewhere(start: Starter, tmp_path: Path) -> None:
    root = tmp_path / ("long" * 25)
    start(root, "s3")
    assert len(os.fsencode(Home(root).sockets)) <= MAX_SOCKET_FOLDER_BYTES
    assert wait_until(lambda: any(Home(root).sockets.iterdir()), 5)


def test_a_missing_program_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries.shutil, "which", lambda _: None)
    monkeypatch.setattr(binaries, "site_packages", lambda: tmp_path)
    monkeypatch.setattr(binaries, "DEBIAN_POSTGRES", tmp_path)
    with pytest.raises(StackError, match=r"redis-server or valkey-server 7\.0 .* SCHEDULER_REDIS_URL"):
        binaries.find_redis()
    with pytest.raises(StackError, match=r"PostgreSQL 15 or newer was not found .*set SCHEDULER_DATABASE_URL"):
        binaries.find_postgres()
    with pytest.raises(StackError, match="PostgreSQL 14 was not found"):
        binaries.find_postgres(14)


def test_a_server_that_fails_shows_its_last_lines(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "home/data/redis/appendonlydir").mkdir(parents=True)
    program = tmp_path / "home/log/redis.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toban_stack.servers.redis.DATABASES", "none")
        with pytest.raises(ProcessFailed, match=r"redis ended while starting\n(.*\n)*.*databases none") as caught:
            start(tmp_path / "home", "redis")
    assert str(program) in str(caught.value)
