"""A whole Toban on one machine: starts, stops and kills processes by name. `make up` and the tests use it."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from toban_domain.errors import TobanError
from toban_runtime.clock import SystemClock
from toban_stack import certs, health
from toban_stack.errors import StackError
from toban_stack.processes import ProcessRecord, alive, called_with, descendants, kill_all, send, stop
from toban_stack.servers import Endpoints, Servers
from toban_stack.servers.launch import COORDINATOR_ROLE, GIVEN, LOG_ARCHIVER_ROLE
from toban_stack.servers.postgres import role_secret
from toban_stack.services import MODULES, SITE, Counts, Services
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_stack.supervisor import report
from toban_stack.supervisor.client import SUPERVISOR, Supervision
from toban_stack.supervisor.policy import Backoff
from toban_stack.wait import wait_until

# Guards whose executor has died end their jobs and themselves within this time.
GUARD_SECONDS = 5.0
GUARD = "toban_executor.guard"
SERVER_NAMES = ("postgres", "redis", "s3")


class Stack:
    """One stack with its folder.

    Every method may be called from any process: running processes are recorded in stack.json. `environment` may have URLs
    of servers to use in place of own ones, and port numbers (TOBAN_PG_PORT, ...); it is os.environ by default. Each of
    `groups` has one executor with the certificate of this executor group, beside `executors` of the default one. With
    `supervise` each process that ends is started again, after these waits, until `down`.
    """

    def __init__(
        self,
        *,
        home: Path,
        coordinators: int = 2,
        executors: int = 2,
        log_archivers: int = 1,
        admin_webs: int = 1,
        signers: int = 0,
        groups: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        supervise: Backoff | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.home = StackPaths(home.absolute())
        self._counts = Counts(
            coordinators=coordinators,
            executors=executors,
            log_archivers=log_archivers,
            admin_webs=admin_webs,
            signers=signers,
            groups=groups,
        )
        self._environment = dict(os.environ if environment is None else environment)
        self._supervise = supervise
        self._on_progress = on_progress

    def up(self) -> None:
        """Starts the processes that are not running. After a failure it stops those that this call started.

        A process that the supervisor has tried to start before stays under its supervision. Raises StackError
        (ProcessFailed with the last lines of a process's log).
        """
        with self._exclusive() as records:
            known = {record.name for record in records.all()}
            before = {record.pid for record in records.all() if records.running(record.name)}
            supervision = self._supervision(records)
            supervised = supervision.running() is not None
            try:
                self._up(records, supervision)
            except BaseException:
                if not supervised:
                    supervision.stop()
                new = [one for one in records.all() if one.pid not in before and not (supervised and one.name in known)]
                supervision.release(one.name for one in new)
                for record in reversed(new):
                    stop(record)
                    records.remove(record.name)
                raise

    def _up(self, records: StateFile, supervision: Supervision) -> None:
        supervision.start()
        with ThreadPoolExecutor(max_workers=1) as pool:
            certificates = pool.submit(certs.make_all, self.home.tls, groups=self._counts.groups)
            endpoints = self._servers(records).start()
            certificates.result()
        self._on_progress("certificates: one for each service, from a development CA")
        self._on_progress(self._migrate(endpoints))
        services = self._services(records, endpoints)
        self._stop_outdated(records, services)
        records.set_facts(
            coordinators=services.addresses("coordinator"),
            log_archivers=services.addresses("log-archiver"),
            executors=services.addresses("executor"),
            sites=services.addresses(SITE),
            tls_dir=str(self.home.tls),
            trust_domain=certs.TRUST_DOMAIN,
            fingerprint=services.fingerprint(),
        )
        services.start()

    def down(self) -> list[str]:
        """Stops every process of the stack, the last started role first; returns a line for each."""
        if not self.home.state_file.exists():
            return []
        with self._exclusive() as records:
            lines = self._supervision(records).stop()
            running = records.all()
            for role in reversed(MODULES):
                group = [record for record in running if record.role == role]
                lines += self._stop(records, group)
                if role == "executor":
                    lines += self._stop_guards(group)
            lines += self._stop(records, [record for record in running if record.name in SERVER_NAMES])
            shutil.rmtree(self.home.run, ignore_errors=True)
            shutil.rmtree(self.home.sockets, ignore_errors=True)
            return lines

    def kill(self, name: str, signal: int) -> None:
        """Sends `signal` to a process by its name (coordinator-1, executor-2, postgres, redis, s3, ...).

        Its record stays, so that `start` finds the same port. Raises StackError when it does not run.
        """
        record = self._records().running(name)
        if record is None or not send(record, signal):
            raise StackError(f"{name} is not running in {self.home.root}")

    def start(self, name: str) -> ProcessRecord:
        """Starts one process again and waits until it serves. Raises StackError for a server that is given by URL."""
        with self._exclusive() as records:
            servers = self._servers(records)
            if name in SERVER_NAMES:
                servers.start(name)
            else:
                self._services(records, servers.locate()).start([name])
            record = records.running(name)
        if record is None:
            raise StackError(f"{name} is not started by this stack (its URL is given)")
        return record

    def processes(self) -> dict[str, ProcessRecord]:
        """The record of each process that runs, by name; without the supervisor."""
        records = self._records()
        return {one.name: one for one in records.all() if one.name != SUPERVISOR and alive(one)}

    def status(self) -> list[health.ProcessStatus]:
        """Each process that the stack should have, servers first."""
        records = self._records()
        ready = self._servers(records).ready() if records.all() else {}
        rows = [
            health.of_server(record, ready=ready.get(record.name, False))
            for record in records.all()
            if record.name in ready
        ]
        services = [record for record in records.all() if record.role in MODULES]
        token = self.home.secret("admin-token") if services else ""
        with ThreadPoolExecutor(max_workers=8) as pool:
            rows += pool.map(partial(health.of_service, token=token), services)
        supervisor = records.get(SUPERVISOR)
        if supervisor is None:
            return rows
        reports = report.read(self.home.supervisor_report)
        return health.supervised(rows, supervisor, reports, now=SystemClock().wall())

    def migrate(self) -> None:
        """Applies missing migrations and lets the roles of services log in, as `up` does. Raises StackError."""
        self._on_progress(self._migrate(self.endpoints()))

    def endpoints(self) -> Endpoints:
        """Addresses of the servers, with their secrets; for tests that read the stores."""
        return self._servers(self._records()).locate()

    @property
    def coordinators(self) -> list[str]:
        """host:port of each coordinator."""
        return list(self._records().fact("coordinators", []))

    @property
    def log_archivers(self) -> list[str]:
        """host:port of each log-archiver."""
        return list(self._records().fact("log_archivers", []))

    @property
    def sites(self) -> list[str]:
        """host:port of each site."""
        return list(self._records().fact("sites", []))

    def _migrate(self, endpoints: Endpoints) -> str:
        """Applies missing migrations; returns a line about them. Raises StackError with the error of the runner."""
        # Imported here: only `up` needs the driver, which would slow `status`.
        from toban_store import migrate

        # Roles of a server that is not ours get no password from here.
        own = not self._environment.get(GIVEN["postgres"])
        roles = (COORDINATOR_ROLE, LOG_ARCHIVER_ROLE) if own else ()
        try:
            applied = migrate.up(
                endpoints.database_url,
                seeds=migrate.seeds_from(os.environ),
                passwords={role: self.home.secret(role_secret(role)) for role in roles},
                say=self._on_progress,
            )
        except TobanError as error:
            raise StackError(f"the database could not be migrated: {error}") from error
        return f"schema: {len(applied)} migrations applied" if applied else "schema: up to date"

    def _servers(self, records: StateFile) -> Servers:
        return Servers(
            home=self.home,
            records=records,
            environment=self._environment,
            launch=self._supervision(records).launch,
            on_progress=self._on_progress,
        )

    def _services(self, records: StateFile, endpoints: Endpoints) -> Services:
        return Services(
            home=self.home,
            records=records,
            endpoints=endpoints,
            counts=self._counts,
            environment=self._environment,
            launch=self._supervision(records).launch,
            on_progress=self._on_progress,
        )

    def _supervision(self, records: StateFile) -> Supervision:
        return Supervision(
            home=self.home, records=records, environment={**os.environ, **self._environment}, backoff=self._supervise
        )

    def _stop_outdated(self, records: StateFile, services: Services) -> None:
        """Stops services that were started for other counts, URLs or settings than the present ones."""
        known = records.fact("fingerprint")
        running = [record for record in records.all() if record.role in MODULES]
        if running and known != services.fingerprint():
            self._on_progress("settings have changed: services are restarted")
            self._supervision(records).release(record.name for record in running)
            for role in reversed(MODULES):
                self._stop(records, [record for record in running if record.role == role])

    def _stop_guards(self, executors: list[ProcessRecord]) -> list[str]:
        """Waits until guards whose executor had died before have ended by themselves; kills what remains."""
        folders = [str(self.home.data / executor.name) for executor in executors]

        def guards() -> list[ProcessRecord]:
            return [guard for folder in folders for guard in called_with(GUARD, folder)]

        if wait_until(lambda: not guards(), GUARD_SECONDS, 0.1):
            return []
        left = guards()
        count = kill_all([*left, *descendants(left)])
        return [f"guards of executors that had died: {count} processes killed"]

    def _stop(self, records: StateFile, group: list[ProcessRecord]) -> list[str]:
        """Stops processes concurrently and removes their records."""
        if not group:
            return []
        with ThreadPoolExecutor(max_workers=len(group)) as pool:
            results = list(pool.map(stop, group))
        kill_all(group)
        for record in group:
            records.remove(record.name)
        return [f"{record.name} {how}" for record, how in zip(group, results, strict=True)]

    def _records(self) -> StateFile:
        return StateFile(path=self.home.state_file)

    @contextmanager
    def _exclusive(self) -> Iterator[StateFile]:
        """Only one launcher changes a stack at a time; a second one waits."""
        self.home.create()
        with (self.home.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._records()
