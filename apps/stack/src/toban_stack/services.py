"""The services of a stack as processes: coordinators, executors, log-archivers and the site, over mTLS on loopback."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from toban_domain.executor_group import DEFAULT_GROUP
from toban_domain.job import ISOLATED, SHARED
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.errors import ProcessFailed
from toban_stack.ports import PortBook
from toban_stack.processes import ProcessRecord, Program, alive, python_program
from toban_stack.servers.endpoints import Endpoints
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_stack.toban_command import clone_of
from toban_stack.wait import wait_until

READY_SECONDS = 60.0
STOP_SECONDS = 15.0
SITE = "admin-web"
# The start order; `down` goes the other way.
MODULES = {
    "coordinator": "toban_coordinator",
    "log-archiver": "toban_log_archiver",
    "executor": "toban_executor",
    SITE: "toban_admin_web",
    "signer": "toban_signer",
}
# Settings of the caller that services get unchanged.
PASSED_ON = ("LOG_LEVEL", "LOG_FORMAT", "SLOTS", "LABELS", "ALLOW_LIST")
# The same for executors, which alone have them.
FOR_EXECUTORS = (
    *("HTTP_STEP_ALLOW", "HTTP_STEP_CA_FILE", "CONTAINER_ENGINE", "CONTAINER_MOUNTS"),
    *("ISOLATION", "SHOWN_FOLDERS", "HIDDEN_FOLDERS", "JOB_UIDS", "JOB_MEMORY_MB", "JOB_PROCESSES", "JOB_CPUS"),
)
# And for the site, which alone serves HTTP and sends webhooks.
FOR_SITE = (
    *("WEBHOOK_ALLOW", "WEBHOOK_CA_FILE", "API_RATE", "HTTP_NAMES", "HTTP_PROXIES", "HTTP_THREADS"),
    *("OIDC_CLIENT_SECRET_FILE", "OIDC_CA_FILE"),
)
# And for coordinators, which decide who signs in.
FOR_COORDINATORS = (
    *(
        "OIDC_ISSUER",
        "OIDC_CLIENT_ID",
        "OIDC_NAME",
        "OIDC_SCOPE",
        "OIDC_GROUPS_CLAIM",
        "OIDC_GROUPS",
        "OIDC_CREATE_ACCOUNTS",
    ),
    *("OIDC_SESSION_MINUTES", "OIDC_CA_FILE", "PASSWORD_SIGN_IN"),
)
# Time that `down` leaves to running jobs; less than STOP_SECONDS, so that the executor stops them itself.
JOB_GRACE_SECONDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The number of processes of each role."""

    coordinators: int = 2
    executors: int = 2
    log_archivers: int = 1
    admin_webs: int = 1
    # 1: machines can join with an invite (docs/joining.md).
    signers: int = 0
    # Groups with one executor each beside those of the default group.
    groups: tuple[str, ...] = ()

    def names(self) -> dict[str, str]:
        """Process name to role, in the start order."""
        numbers = {
            "coordinator": self.coordinators,
            "log-archiver": self.log_archivers,
            "executor": self.executors,
            SITE: self.admin_webs,
            "signer": self.signers,
        }
        return {f"{role}-{n}": role for role in MODULES for n in range(1, numbers[role] + 1)} | dict.fromkeys(
            self.group_of, "executor"
        )

    @property
    def group_of(self) -> dict[str, str]:
        """The executors of groups other than the default one, by their process names."""
        return {f"executor-{group}-1": group for group in self.groups if group != DEFAULT_GROUP}


class Services:
    """Starts the services that are not running and waits until they serve."""

    def __init__(
        self,
        *,
        home: StackPaths,
        records: StateFile,
        endpoints: Endpoints,
        counts: Counts,
        environment: Mapping[str, str],
        launch: Callable[[Program], ProcessRecord],
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._records = records
        self._endpoints = endpoints
        self._environment = environment
        self._launch = launch
        self._on_progress = on_progress
        self._roles = counts.names()
        self._groups = counts.group_of
        book = PortBook(path=home.root / "ports.json", environment=environment, on_progress=on_progress)
        in_use = {name: records.running(name) is not None for name in self._roles}
        self._ports = {name: book.port(name, in_use=in_use[name]) for name in self._roles}
        self._admin_ports = {name: book.port(f"{name}-admin", in_use=in_use[name]) for name in self._roles}

    def addresses(self, role: str) -> list[str]:
        """host:port of each process of a role."""
        return [f"127.0.0.1:{self._ports[name]}" for name, its in self._roles.items() if its == role]

    def fingerprint(self) -> str:
        """Differs when running services need a restart: other addresses, URLs or settings."""
        keys = (*PASSED_ON, *FOR_EXECUTORS, *FOR_SITE, *FOR_COORDINATORS)
        settings = {key: self._environment.get(f"SCHEDULER_{key}", "") for key in keys}
        facts = [self._ports, settings, asdict(self._endpoints)]
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def start(self, names: Iterable[str] | None = None) -> list[str]:
        """Starts those of `names` (default: all) that are not running, concurrently; returns the names it started.

        Raises ProcessFailed for the first one that does not become ready.
        """
        names = list(names or self._roles)
        before = {name: self._records.running(name) for name in names}
        records = [self._launch(self._program(name)) for name in names]
        with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
            for future in [pool.submit(self._wait, record, before[record.name]) for record in records]:
                future.result()
        return [record.name for record in records if record != before[record.name]]

    def _program(self, name: str) -> Program:
        role = self._roles[name]
        return Program(
            name=name,
            role=role,
            argv=python_program("-m", MODULES[role]),
            environment=self._environment_of(name, role),
            log=self._home.log_file(name),
            address=f"127.0.0.1:{self._ports[name]}",
            admin=f"127.0.0.1:{self._admin_ports[name]}",
            grace_seconds=STOP_SECONDS,
            leftovers=(str(self._ready_file(name)),),
        )

    def _wait(self, record: ProcessRecord, before: ProcessRecord | None) -> None:
        name, log = record.name, Path(record.log)
        up = wait_until(lambda: self._serves(record) or not alive(record), READY_SECONDS)
        if not alive(record):
            raise ProcessFailed(name=name, reason="ended while starting", log=log)
        if not up:
            raise ProcessFailed(name=name, reason=f"was not ready within {READY_SECONDS:g} s", log=log)
        if record != before:
            self._on_progress(f"{name} on {record.address}")

    def _serves(self, record: ProcessRecord) -> bool:
        try:
            return bool(json.loads(self._ready_file(record.name).read_text())["pid"] == record.pid)
        except FileNotFoundError:
            return False

    def _ready_file(self, name: str) -> Path:
        return self._home.run / f"{name}.ready"

    def _environment_of(self, name: str, role: str) -> dict[str, str]:
        settings = {
            "TLS_DIR": str(self._home.tls / (f"{role}-{self._groups[name]}" if name in self._groups else role)),
            "TRUST_DOMAIN": TRUST_DOMAIN,
            "NODE_ID": name,
            **self._listen_settings(name, role),
            "ADMIN_HOST": "127.0.0.1",
            "ADMIN_PORT": str(self._admin_ports[name]),
            "ADMIN_TOKEN_FILE": str(self._home.admin_token()),
            "COORDINATORS": ",".join(self.addresses("coordinator")),
            "LOG_ARCHIVERS": ",".join(self.addresses("log-archiver")),
            "READY_FILE": str(self._ready_file(name)),
            "LOG_FORMAT": "console",
            **self._store_settings(role),
        }
        if role == "coordinator" and (signers := self.addresses("signer")):
            settings["SIGNER"] = ",".join(signers)
        if role == "signer":
            settings["CA_DIR"] = str(self._home.tls / "ca")
        if role == "executor":
            settings["SHUTDOWN_TIMEOUT_SECONDS"] = str(JOB_GRACE_SECONDS)
            settings["SHUTDOWN_GRACE_SECONDS"] = str(JOB_GRACE_SECONDS)
            # An executor refuses what the class that is chosen does not use.
            kind = self._environment.get("SCHEDULER_ISOLATION", "")
            if kind not in (ISOLATED, SHARED):
                # It has the keys of all services.
                settings["HIDDEN_FOLDERS"] = str(self._home.root)
            if kind != SHARED and (shown := self._shown_folders()):
                settings["SHOWN_FOLDERS"] = ",".join(map(str, shown))
        passed_on = (
            *PASSED_ON,
            *{"executor": FOR_EXECUTORS, SITE: FOR_SITE, "coordinator": FOR_COORDINATORS}.get(role, ()),
        )
        given = {
            key: self._environment[f"SCHEDULER_{key}"] for key in passed_on if f"SCHEDULER_{key}" in self._environment
        }
        caller = {**os.environ, **self._environment}
        base = {key: value for key, value in caller.items() if not key.startswith(("SCHEDULER_", "TOBAN_"))}
        return {**base, **{f"SCHEDULER_{key}": value for key, value in {**settings, **given}.items()}}

    def _shown_folders(self) -> list[Path]:
        """What jobs use: examples and what people write beside them, wherever the clone is; else the folder that has the stack's own, and the
        Python environment with the SDK."""
        if (clone := clone_of()) is not None:
            return [clone]
        beside = self._home.root.parent
        return [Path(sys.prefix), *([beside] if beside != Path.home() else [])]

    def _listen_settings(self, name: str, role: str) -> dict[str, str]:
        """Its listening address and its state folder; the site has no state."""
        port = str(self._ports[name])
        if role == SITE:
            return {"HTTP_HOST": "127.0.0.1", "HTTP_PORT": port}
        state = self._home.data / name
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            "GRPC_HOST": "127.0.0.1",
            "GRPC_PORT": port,
            "ADVERTISE_HOST": "127.0.0.1",
            "STATE_DIR": str(state),
        }

    def _store_settings(self, role: str) -> dict[str, str]:
        """The stores that the role may use: an executor gets no database credential. Secrets are passed by file."""
        endpoints = self._endpoints
        secrets: dict[str, str] = {}
        plain: dict[str, str] = {}
        if role == "coordinator":
            secrets = {"DATABASE_URL": endpoints.coordinator_database_url, "REDIS_URL": endpoints.redis_url}
            plain["SECRETS_KEY_FILE"] = str(self._home.secrets_key())
        if role == "log-archiver":
            secrets["DATABASE_URL"] = endpoints.log_archiver_database_url
            secrets |= {"S3_ACCESS_KEY": endpoints.s3_access_key, "S3_SECRET_KEY": endpoints.s3_secret_key}
            plain = {
                "S3_ENDPOINT_URL": endpoints.s3_endpoint_url,
                "S3_BUCKET": endpoints.s3_bucket,
                "S3_REGION": endpoints.s3_region,
            }
        files = {
            f"{key}_FILE": str(self._home.keep_secret(f"{role}-{key.lower()}", value))
            for key, value in secrets.items()
            if value
        }
        return plain | files
