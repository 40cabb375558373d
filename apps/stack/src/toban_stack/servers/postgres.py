"""A private PostgreSQL: TCP on loopback only; an administrator and a role for each service, with generated passwords."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from toban_stack.errors import StackError
from toban_stack.processes import Program
from toban_stack.servers import run_as
from toban_stack.servers.binaries import PostgresBinaries, find_postgres
from toban_stack.stack_paths import StackPaths

USER = "toban"
DATABASE = "toban"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # TCP only: a Unix socket's path has a length limit, and a clone may lie anywhere.
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
}
# For tests: the data is thrown away, so a crash of the machine may take it. Tests also use logical replication.
VOLATILE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "wal_level": "logical"}


def role_secret(role: str) -> str:
    """The name of the secret with a role's password: toban_coordinator -> postgres-coordinator-password."""
    return f"postgres-{role.removeprefix('toban_').replace('_', '-')}-password"


class PostgresServer:
    """One PostgreSQL server with its data in the stack's folder."""

    name = "postgres"

    def __init__(
        self, *, home: StackPaths, port: int, binaries: PostgresBinaries | None = None, durable: bool = True
    ) -> None:
        self._home = home
        self._port = port
        self._durable = durable
        self._data = home.data / "postgres"
        self.binaries = binaries or find_postgres(self._data_major())

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The URL of the stack's database for its administrator (a superuser), with the password."""
        return self._url(USER, self._home.secret("postgres-password"))

    def role_url(self, role: str) -> str:
        """The URL for the role of a service, which `make up` lets log in with this password."""
        return self._url(role, self._home.secret(role_secret(role)))

    def _url(self, user: str, password: str) -> str:
        return f"postgresql://{user}:{password}@{self.address}/{DATABASE}"

    @property
    def description(self) -> str:
        """The program and its major version, for people."""
        return f"PostgreSQL {self.binaries.major}"

    def prepare(self) -> str:
        """Makes the data folder at the first start, atomically."""
        if self._data.exists():
            return ""
        draft = self._data.with_name("postgres.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        identity = _Identity.choose(draft)
        self._home.secret("postgres-password")
        password_file = draft.with_name("postgres.pw")
        shutil.copyfile(self._home.secrets / "postgres-password", password_file)
        password_file.chmod(0o600)
        identity.own(password_file)
        options = ["-U", USER, "-A", "scram-sha-256", "--pwfile", str(password_file), "-E", "UTF8"]
        options += ["--locale=C.UTF-8", "-D", str(draft)] + ([] if self._durable else ["--no-sync"])
        try:
            self._run(identity, [self._binary("initdb"), *options])
        finally:
            password_file.unlink()
        single = [self._binary("postgres"), "--single", "-D", str(draft), "postgres"]
        self._run(identity, single, f"CREATE DATABASE {DATABASE};\n")
        draft.rename(self._data)
        return ""

    def program(self) -> Program:
        """The program to start."""
        settings = {**SETTINGS, "port": str(self._port), **({} if self._durable else VOLATILE)}
        argv = [self._binary("postgres"), "-D", str(self._data)]
        argv += [argument for key, value in settings.items() for argument in ("-c", f"{key}={value}")]
        return Program(
            name=self.name,
            role="database",
            argv=tuple(_Identity.of(self._data).command(argv)),
            environment=_environment(),
            log=self._home.log_file(self.name),
            address=self.address,
            # "fast" ends sessions, where SIGTERM would wait for them; "immediate" does not even write a checkpoint.
            stop_signal=signal.SIGINT if self._durable else signal.SIGQUIT,
            grace_seconds=20.0,
        )

    def ready(self) -> bool:
        """Whether it accepts connections, which PostgreSQL notes in its pid file."""
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def before_start(self) -> None:
        """Marks the pid file of a killed server as stopped, so that `ready` is about the new one.

        The other lines stay: PostgreSQL protects its data by the shared memory that they name.
        """
        pid_file = self._data / "postmaster.pid"
        if pid_file.exists():
            lines = pid_file.read_text(encoding="utf-8").splitlines()
            if len(lines) >= 8:
                pid_file.write_text("\n".join([*lines[:7], "stopped"]) + "\n", encoding="utf-8")

    def _binary(self, name: str) -> str:
        return str(self.binaries.folder / name)

    def _data_major(self) -> int | None:
        version_file = self._data / "PG_VERSION"
        return int(version_file.read_text()) if version_file.exists() else None

    def _run(self, identity: "_Identity", argv: list[str], text: str = "") -> None:
        command = identity.command(argv)
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env=_environment(), cwd="/", check=False
        )
        if done.returncode != 0:
            output = "\n".join(f"  | {line}" for line in (done.stdout + done.stderr).splitlines()[-12:])
            raise StackError(
                f"{Path(argv[0]).name} failed (exit {done.returncode}):\n{output}\n"
                "  Set SCHEDULER_DATABASE_URL to use another PostgreSQL."
            )


class _Identity:
    """The user that PostgreSQL runs as: the caller, or another one when the caller is root or has no account."""

    def __init__(self, mode: str, uid: int = 0, gid: int = 0) -> None:
        self._mode = mode
        self._uid = uid
        self._gid = gid

    @classmethod
    def choose(cls, folder: Path) -> "_Identity":
        """For a new data folder, which it makes accessible for that user."""
        if os.geteuid() != 0 and _has_account(os.geteuid()):
            return cls("caller")
        uid, gid = _unprivileged()
        identity = cls("namespace", uid, gid)
        probe = subprocess.run(identity.command(["/bin/true"]), capture_output=True, check=False)
        if probe.returncode != run_as.REFUSED:
            return identity
        identity = cls("drop", uid, gid)
        identity.own(folder)
        for parent in folder.parents[:2]:
            parent.chmod(0o711)  # that user has to traverse the folder of the stack
        return identity

    @classmethod
    def of(cls, folder: Path) -> "_Identity":
        """For an existing data folder, by its owner."""
        owner = folder.stat().st_uid
        if owner != os.geteuid():
            return cls("drop", owner, folder.stat().st_gid)
        return cls("caller") if owner != 0 and _has_account(owner) else cls("namespace", *_unprivileged())

    def own(self, path: Path) -> None:
        """Makes this user the owner of `path` when it differs from the caller outside of a namespace, too."""
        if self._mode == "drop":
            os.chown(path, self._uid, self._gid)

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` as this user."""
        if self._mode == "caller":
            return list(argv)
        launcher = [sys.executable, "-I", "-S", run_as.__file__, self._mode, str(self._uid), str(self._gid)]
        return [*launcher, *argv]


def _has_account(uid: int) -> bool:
    """initdb fails for a user id without an account."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _unprivileged() -> tuple[int, int]:
    """An account other than root: `nobody`, else the first one."""
    accounts = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    if not accounts:
        raise StackError("/etc/passwd has no account except root, and PostgreSQL refuses to run as root: add one")
    best = next((entry for entry in accounts if entry.pw_name == "nobody"), accounts[0])
    return best.pw_uid, best.pw_gid


def _environment() -> dict[str, str]:
    """The environment without the PG* variables of the caller."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LD_LIBRARY_PATH", "TZ")}
    return {**kept, "LC_ALL": "C.UTF-8"}
