"""The servers of a test session: each starts at its first use and ends with the session."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from toban_stack.processes import ProcessRecord, boot_id, start_time, stop
from toban_stack.servers import Endpoints, Servers
from toban_stack.servers.binaries import find_postgres
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_testing.postgres import PostgresTestServer

PREFIX = "toban-tests-"


class SessionServers:
    """PostgreSQL (of one or more major versions), Redis and S3 in a folder below the temporary one."""

    def __init__(self) -> None:
        sweep()
        self._root = Path(tempfile.mkdtemp(prefix=PREFIX))
        (self._root / "owner").write_text(_owner(os.getpid()))
        self._endpoints: dict[str, Endpoints] = {}
        self._postgres: dict[int, PostgresTestServer] = {}

    def postgres(self, major: int) -> PostgresTestServer:
        """The server of this major version."""
        if major not in self._postgres:
            url = self._start("postgres", f"pg{major}", major).database_url
            self._postgres[major] = PostgresTestServer(url=url)
        return self._postgres[major]

    def redis_url(self) -> str:
        """The URL of Redis, database 0."""
        return self._start("redis", "redis").redis_url

    def s3(self) -> Endpoints:
        """The endpoint of S3, with its keys."""
        return self._start("s3", "s3")

    def stop(self) -> None:
        """Ends every server and removes the folder."""
        for server in self._postgres.values():
            server.close()
        _remove(self._root)

    def _start(self, name: str, folder: str, major: int | None = None) -> Endpoints:
        if folder not in self._endpoints:
            home = StackPaths(self._root / folder)
            home.create()
            servers = Servers(
                home=home,
                records=StateFile(path=home.state_file),
                environment={},
                durable=False,
                postgres=find_postgres(major) if major else None,
            )
            self._endpoints[folder] = servers.start(name)
        return self._endpoints[folder]


def sweep() -> None:
    """Ends the servers of sessions that crashed. Several sessions may do it at once: what another one removes meanwhile is left to it."""
    for root in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            _sweep(root)


def _sweep(root: Path) -> None:
    owner = root / "owner"
    if root.stat().st_uid != os.getuid():
        return
    recorded = owner.read_text()
    if recorded and recorded != _owner(int(recorded.split()[0])):
        _remove(root)


def _owner(pid: int) -> str:
    return f"{pid} {start_time(pid)} {boot_id()}"


def _remove(root: Path) -> None:
    records: list[ProcessRecord] = []
    for state in root.glob("*/stack.json"):
        records += StateFile(path=state).all()
    for record in records:
        stop(record)
    for folder in root.iterdir():
        if folder.is_dir():
            shutil.rmtree(StackPaths(folder).sockets, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)
