"""The servers of a test session: each starts at its first use and ends with the session, at the latest with its process."""

import shutil
import tempfile
from pathlib import Path

from toban_stack.servers import Endpoints, Servers
from toban_stack.servers.binaries import find_postgres
from toban_stack.stack import Stack
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_testing.postgres import PostgresTestServer
from toban_testing.starter import end_with_this_process


class SessionServers:
    """PostgreSQL (of one or more major versions), Redis and S3 in a folder below the temporary one."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="toban-tests-"))
        end_with_this_process(self._root, remove=True)
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
        for folder in self._endpoints:
            Stack(home=self._root / folder).down()
        shutil.rmtree(self._root)

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
