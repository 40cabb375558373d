"""Starts the servers that a stack needs, side by side, and says where they are."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from toban_stack.errors import ProcessFailed
from toban_stack.home import Home
from toban_stack.ports import PortBook
from toban_stack.processes import Program, alive, spawn
from toban_stack.records import Records
from toban_stack.servers.binaries import PostgresBinaries
from toban_stack.servers.endpoints import Endpoints
from toban_stack.servers.postgres import PostgresServer
from toban_stack.servers.redis import RedisServer
from toban_stack.servers.s3 import REGION, S3Server
from toban_stack.wait import wait_until

READY_SECONDS = 60.0
GIVEN = {
    "postgres": "SCHEDULER_DATABASE_URL",
    "redis": "SCHEDULER_REDIS_URL",
    "s3": "SCHEDULER_S3_ENDPOINT_URL",
}


class Server(Protocol):
    """What PostgresServer, RedisServer and S3Server have in common."""

    name: str

    @property
    def address(self) -> str:
        """host:port."""

    @property
    def description(self) -> str:
        """What runs, for people."""

    def prepare(self) -> None:
        """What the first start needs; harmless later."""

    def before_start(self) -> None:
        """Clears away what a killed server left."""

    def program(self) -> Program:
        """How to start it."""

    def ready(self) -> bool:
        """Whether it serves."""


class Servers:
    """The servers of one stack.

    A URL in `environment` (SCHEDULER_DATABASE_URL, SCHEDULER_REDIS_URL, SCHEDULER_S3_ENDPOINT_URL) takes a
    server's place. `durable=False` is for tests, whose data nobody misses.
    """

    def __init__(
        self,
        *,
        home: Home,
        records: Records,
        environment: Mapping[str, str],
        durable: bool = True,
        postgres: PostgresBinaries | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._records = records
        self._environment = environment
        self._durable = durable
        self._postgres = postgres
        self._say = say
        self._ports = PortBook(path=home.root / "ports.json", environment=environment)

    def start(self, *names: str) -> Endpoints:
        """Starts the named servers (all without names) that are not given and do not run; waits for all of them.

        Raises ProcessFailed with the server's last lines, or StackError when a program is missing.
        """
        wanted = names or tuple(GIVEN)
        own = self._own(wanted)
        with ThreadPoolExecutor(max_workers=3) as pool:
            for future in [pool.submit(self._start, server) for server in own.values()]:
                future.result()
        return self._endpoints(own, wanted)

    def locate(self) -> Endpoints:
        """Where the servers are; starts nothing."""
        return self._endpoints(self._own(tuple(GIVEN)), tuple(GIVEN))

    def ready(self) -> dict[str, bool]:
        """Whether each server of our own serves, by name."""
        return {name: server.ready() for name, server in self._own(tuple(GIVEN)).items() if self._records.get(name)}

    def _own(self, wanted: tuple[str, ...]) -> dict[str, Server]:
        return {name: self._server(name) for name in wanted if not self._given(name)}

    def _start(self, server: Server) -> None:
        if self._records.running(server.name):
            return
        server.prepare()
        server.before_start()
        record = spawn(server.program())
        self._records.add(record)
        log = self._home.log_file(server.name)
        up = wait_until(lambda: server.ready() or not alive(record), READY_SECONDS)
        if not alive(record):
            raise ProcessFailed(name=server.name, reason="ended while starting", log=log)
        if not up:
            raise ProcessFailed(name=server.name, reason=f"was not ready within {READY_SECONDS:g} s", log=log)
        self._say(f"{server.description} on {server.address}")

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
        return Endpoints(
            database_url=postgres.url if isinstance(postgres, PostgresServer) else given["postgres"],
            redis_url=redis.url if isinstance(redis, RedisServer) else given["redis"],
            s3_endpoint_url=s3.url if isinstance(s3, S3Server) else given["s3"],
            s3_bucket=keys.get("SCHEDULER_S3_BUCKET", "toban-logs"),
            s3_region=keys.get("SCHEDULER_S3_REGION", REGION),
            s3_access_key=s3.access_key if isinstance(s3, S3Server) else keys.get("SCHEDULER_S3_ACCESS_KEY", ""),
            s3_secret_key=s3.secret_key if isinstance(s3, S3Server) else keys.get("SCHEDULER_S3_SECRET_KEY", ""),
        )
