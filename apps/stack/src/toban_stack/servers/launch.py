"""Starts the servers of a stack concurrently and returns their addresses."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from toban_stack.errors import ProcessFailed
from toban_stack.ports import PortBook
from toban_stack.processes import ProcessRecord, Program, alive
from toban_stack.servers.binaries import PostgresBinaries
from toban_stack.servers.endpoints import Endpoints
from toban_stack.servers.postgres import PostgresServer
from toban_stack.servers.redis import RedisServer
from toban_stack.servers.s3 import REGION, S3Server
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_stack.wait import wait_until

READY_SECONDS = 60.0
# As in toban_store.roles, which is not imported here: it loads the driver, which would slow `status`.
COORDINATOR_ROLE, LOG_ARCHIVER_ROLE = "toban_coordinator", "toban_log_archiver"
GIVEN = {
    "postgres": "SCHEDULER_DATABASE_URL",
    "redis": "SCHEDULER_REDIS_URL",
    "s3": "SCHEDULER_S3_ENDPOINT_URL",
}


class Server(Protocol):
    """The interface of PostgresServer, RedisServer and S3Server."""

    name: str

    @property
    def address(self) -> str:
        """host:port."""

    @property
    def description(self) -> str:
        """The name of the program, for people."""

    def prepare(self) -> str:
        """Makes what the first start needs; harmless later. Returns a line for the person at the prompt, or nothing."""

    def before_start(self) -> None:
        """Removes what a killed server left and the next one would stumble over, beyond the leftovers of its program."""

    def program(self) -> Program:
        """The program to start."""

    def ready(self) -> bool:
        """Whether it serves requests."""


class Servers:
    """The servers of one stack.

    A URL in `environment` (SCHEDULER_DATABASE_URL, SCHEDULER_REDIS_URL, SCHEDULER_S3_ENDPOINT_URL) takes a
    server's place. `durable=False` is for tests: a crash of the machine may lose data. `launch` returns the process of a program's
    name when it runs, else a new one.
    """

    def __init__(
        self,
        *,
        home: StackPaths,
        records: StateFile,
        environment: Mapping[str, str],
        durable: bool = True,
        postgres: PostgresBinaries | None = None,
        launch: Callable[[Program], ProcessRecord] | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._records = records
        self._environment = environment
        self._durable = durable
        self._postgres = postgres
        self._launch = launch or records.launch
        self._on_progress = on_progress
        self._ports = PortBook(path=home.root / "ports.json", environment=environment, on_progress=on_progress)

    def start(self, *names: str) -> Endpoints:
        """Starts the named servers (default: all) that are neither given nor running, and waits for all of them.

        Raises ProcessFailed for a server that does not become ready, StackError when a program is missing.
        """
        wanted = names or tuple(GIVEN)
        own = self._own(wanted)
        with ThreadPoolExecutor(max_workers=3) as pool:
            for future in [pool.submit(self._start, server) for server in own.values()]:
                future.result()
        return self._endpoints(own, wanted)

    def locate(self) -> Endpoints:
        """Addresses of the servers; starts nothing."""
        return self._endpoints(self._own(tuple(GIVEN)), tuple(GIVEN))

    def ready(self) -> dict[str, bool]:
        """Whether each server of this stack serves, by name; without those given by URL."""
        return {name: server.ready() for name, server in self._own(tuple(GIVEN)).items() if self._records.get(name)}

    def _own(self, wanted: tuple[str, ...]) -> dict[str, Server]:
        return {name: self._server(name) for name in wanted if not self._given(name)}

    def _start(self, server: Server) -> None:
        running = self._records.running(server.name)
        if running is None:
            if note := server.prepare():
                self._on_progress(note)
            server.before_start()
        record = self._launch(server.program())
        log = self._home.log_file(server.name)
        up = wait_until(lambda: server.ready() or not alive(record), READY_SECONDS)
        if not alive(record):
            raise ProcessFailed(name=server.name, reason="ended while starting", log=log)
        if not up:
            raise ProcessFailed(name=server.name, reason=f"was not ready within {READY_SECONDS:g} s", log=log)
        if running != record:
            self._on_progress(f"{server.description} on {server.address}")

    def _server(self, name: str) -> Server:
        running = self._records.running(name) is not None
        if name == "s3":
            return S3Server(home=self._home, ports=self._ports, in_use=running)
        port = self._ports.port(name, in_use=running)
        if name == "redis":
            return RedisServer(home=self._home, port=port, durable=self._durable)
        return PostgresServer(home=self._home, port=port, binaries=self._postgres, durable=self._durable)

    def _given(self, name: str) -> str:
        return self._environment.get(GIVEN[name], "")

    def _endpoints(self, own: Mapping[str, Server], wanted: tuple[str, ...]) -> Endpoints:
        postgres, redis, s3 = own.get("postgres"), own.get("redis"), own.get("s3")
        given = {name: self._given(name) if name in wanted else "" for name in GIVEN}
        keys = self._environment

        def database_url(role: str, variable: str) -> str:
            return (
                postgres.role_url(role)
                if isinstance(postgres, PostgresServer)
                else keys.get(variable, given["postgres"])
            )

        return Endpoints(
            database_url=postgres.url if isinstance(postgres, PostgresServer) else given["postgres"],
            coordinator_database_url=database_url(COORDINATOR_ROLE, "TOBAN_COORDINATOR_DATABASE_URL"),
            log_archiver_database_url=database_url(LOG_ARCHIVER_ROLE, "TOBAN_LOG_ARCHIVER_DATABASE_URL"),
            redis_url=redis.url if isinstance(redis, RedisServer) else given["redis"],
            s3_endpoint_url=s3.url if isinstance(s3, S3Server) else given["s3"],
            s3_bucket=keys.get("SCHEDULER_S3_BUCKET", "toban-logs"),
            s3_region=keys.get("SCHEDULER_S3_REGION", REGION),
            s3_access_key=s3.access_key if isinstance(s3, S3Server) else keys.get("SCHEDULER_S3_ACCESS_KEY", ""),
            s3_secret_key=s3.secret_key if isinstance(s3, S3Server) else keys.get("SCHEDULER_S3_SECRET_KEY", ""),
        )
