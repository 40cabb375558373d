"""Migrations: plain SQL files `migrations/<schema>/<version>_<name>.sql` in dbmate's format, applied once, in order, each in one transaction.

Usage: python -m toban_store.migrate up [--passwords FOLDER]|status|wait|roles, with SCHEDULER_DATABASE_URL (or SCHEDULER_DATABASE_URL_FILE) set.
`up` works as toban_owner where it may (toban_store.roles), and grants each role its rights (toban_store.privileges). It also gives the settings
that environment variables name (SCHEDULER_SKIP_LATE_RUNS_AFTER_SECONDS) their first values; one that was stored before is left alone. With a
FOLDER it lets each role log in that has a file `<role>_password` there. `wait` ends when every migration of this code is applied, by any process,
and waits while PostgreSQL is unreachable. `roles` prints the SQL that makes the roles, and needs no database.
An advisory lock lets one runner work at a time; a checksum of each applied file makes a later change of it an error. A database may be ahead
of this code (a newer release migrated it): old code runs on the new schema.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psycopg

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import spec_of
from toban_runtime.config_checks import check_database_url
from toban_store import privileges, roles
from toban_store.pool import connect_arguments

MIGRATIONS = Path(__file__).parent / "migrations"
OLDEST_SERVER = 15
# Seconds between two looks of `wait`.
WAIT_SECONDS = 1.0
# Held for the session, so that it also covers the making of the table. The value is "toban" in ASCII.
_LOCK = 0x746F62616E
# A migration may take long; waiting for another runner and for locks of a running service may not take for ever.
_SESSION = {"lock_timeout": "60s", "statement_timeout": "0", "TimeZone": "UTC", "client_min_messages": "warning"}
_FILE_NAME = re.compile(r"^(?P<version>\d{4})_(?P<name>[a-z0-9_]+)\.sql$")
_SECTION = re.compile(r"^--\s*migrate:(?P<section>up|down)\s*$", re.MULTILINE)
_TABLE = """
CREATE TABLE IF NOT EXISTS public.toban_migrations (
    schema text NOT NULL, version integer NOT NULL, name text NOT NULL, checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (schema, version))
"""

# Settings that an environment variable may give their first value.
SEEDED = ("skip_late_runs_after_seconds",)
_SEED = """
INSERT INTO scheduler.settings (name, value, updated_by) VALUES (%s, %s::jsonb, 'migration') ON CONFLICT (name) DO NOTHING
"""


class MigrationError(TobanError):
    """The database cannot be migrated: the message is one line that says which file or server, and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CONFIG_INVALID, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file; `checksum` is the SHA-256 of its text, `up` the SQL of its first section."""

    schema: str
    version: int
    name: str
    checksum: str
    up: str

    @property
    def label(self) -> str:
        """`scheduler/0001_spine`."""
        return f"{self.schema}/{self.version:04d}_{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationState:
    """Where one migration stands: applied, pending, changed (its file differs from what was applied), newer (unknown to this code)."""

    label: str
    state: str


def read_migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """All migrations in the order of application. Raises MigrationError for a misnamed or malformed file."""
    found = [_read(path) for path in sorted(folder.glob("*/*.sql"))]
    keys = [(migration.schema, migration.version) for migration in found]
    for key in keys:
        if keys.count(key) > 1:
            raise MigrationError(f"{key[0]}: two files have the version {key[1]:04d}; give one of them another number")
    # By version first: the schemas grow together.
    return sorted(found, key=lambda migration: (migration.version, migration.schema))


def up(
    url: str,
    *,
    folder: Path = MIGRATIONS,
    seeds: Mapping[str, float] | None = None,
    passwords: Mapping[str, str] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> list[str]:
    """Applies what is missing and returns its labels; then stores `seeds`, the first values of settings. Safe to repeat and to run twice at once.

    `passwords` (by role) lets these roles log in. `say` gets a line when the roles cannot be set up by this login, which goes on without them.

    Raises MigrationError when an applied file has changed, the server is too old or cannot be reached, or a file fails (which leaves
    nothing of that file behind).
    """
    wanted = read_migrations(folder)
    with _session(url) as connection:
        connection.execute("SELECT pg_advisory_lock(%s::bigint)", (_LOCK,))
        roles.act_as_owner(connection, say=say)
        connection.execute(_TABLE)
        applied = _applied(connection)
        _refuse_changed(wanted, applied)
        missing = [migration for migration in wanted if (migration.schema, migration.version) not in applied]
        for migration in missing:
            _apply(connection, migration, grant=migration is missing[-1])
        # A newer release has its own list, and may need more.
        if not missing and applied.keys() <= {(migration.schema, migration.version) for migration in wanted}:
            with connection.transaction():
                privileges.apply(connection)
        for name, value in (seeds or {}).items():
            connection.execute(_SEED, (name, json.dumps(value)))
        if passwords:
            _let_log_in(connection, passwords)
    return [migration.label for migration in missing]


def seeds_from(environment: Mapping[str, str]) -> dict[str, float]:
    """Settings that the environment names. Raises MigrationError for a value that is none."""
    found: dict[str, float] = {}
    for name in SEEDED:
        variable = f"SCHEDULER_{name.upper()}"
        text = environment.get(variable, "")
        if not text:
            continue
        try:
            found[name] = spec_of(name).check(json.loads(text))
        except (ValueError, TobanError) as error:
            why = error.message if isinstance(error, TobanError) else f"{text!r} is not a number"
            raise MigrationError(f"{variable}: {why}") from None
    return found


def status(url: str, *, folder: Path = MIGRATIONS) -> list[MigrationState]:
    """Where each migration stands; changes nothing."""
    with _session(url) as connection:
        applied = _applied(connection)
    return compare(applied, folder=folder)


def compare(applied: Mapping[tuple[str, int], str], *, folder: Path = MIGRATIONS) -> list[MigrationState]:
    """Where each migration of this code stands, and those that are newer; `applied` is (schema, version) → checksum."""
    wanted = read_migrations(folder)
    states = [
        MigrationState(
            label=migration.label, state=_state(migration, applied.get((migration.schema, migration.version)))
        )
        for migration in wanted
    ]
    known = {(migration.schema, migration.version) for migration in wanted}
    newer = sorted(applied.keys() - known)
    return states + [MigrationState(label=f"{schema}/{version:04d}", state="newer") for schema, version in newer]


def check(url: str, *, folder: Path = MIGRATIONS) -> None:
    """Raises MigrationError unless every migration of this code is applied, unchanged."""
    _refuse_states(status(url, folder=folder), "pending", "changed")


def wait(url: str, *, say: Callable[[str], object], folder: Path = MIGRATIONS) -> None:
    """Returns when every migration of this code is applied; `say` gets a line each time that what is missing changes.

    Raises MigrationError for an applied file that has changed, which waiting does not repair.
    """
    pause, last = threading.Event(), ""
    while problem := _missing(url, folder):
        if problem != last:
            say(f"waiting: {problem}")
        last = problem
        pause.wait(WAIT_SECONDS)


def _missing(url: str, folder: Path) -> str:
    try:
        states = status(url, folder=folder)
    except MigrationError as error:
        return error.message
    _refuse_states(states, "changed")
    pending = [one.label for one in states if one.state == "pending"]
    return f"{len(pending)} migrations are pending, the first is {pending[0]}" if pending else ""


def _refuse_states(states: Iterable[MigrationState], *refused: str) -> None:
    for one in states:
        if one.state in refused:
            raise MigrationError(
                f"migration {one.label} is {one.state}: run `python -m toban_store.migrate up` with this release"
            )


def check_server(server_version: int) -> None:
    """Raises MigrationError for a server (libpq's number, 150004 for 15.4) older than PostgreSQL 15."""
    if server_version < OLDEST_SERVER * 10_000:
        major, minor = divmod(server_version, 10_000)
        raise MigrationError(f"PostgreSQL {major}.{minor} is too old: Toban needs {OLDEST_SERVER} or newer")


def _read(path: Path) -> Migration:
    named = _FILE_NAME.match(path.name)
    if named is None:
        raise MigrationError(f"{path.name}: a migration is named like 0001_spine.sql")
    text = path.read_text(encoding="utf-8")
    parts = _SECTION.split(text)
    if parts[1::2] != ["up", "down"] or parts[0].strip():
        raise MigrationError(f"{path.name}: needs `-- migrate:up`, its SQL, then `-- migrate:down` and its SQL")
    return Migration(
        schema=path.parent.name,
        version=int(named["version"]),
        name=named["name"],
        checksum=hashlib.sha256(text.encode()).hexdigest(),
        up=parts[2],
    )


def _connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    try:
        connection = psycopg.connect(
            **connect_arguments(url, application_name="toban-migrate", session=_SESSION), autocommit=True
        )
    except psycopg.Error as error:
        raise MigrationError(f"cannot connect to PostgreSQL: {_one_line(error)}") from error
    try:
        check_server(connection.info.server_version)
    except MigrationError:
        connection.close()
        raise
    return connection


@contextmanager
def _session(url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection whose errors are MigrationErrors: a role without rights is as common as a server that goes away."""
    with _connect(url) as connection:
        try:
            yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            raise MigrationError(
                f"{_one_line(error)}: run `python -m toban_store.migrate up` as toban_owner or an administrator (docs/database-roles.md)"
            ) from error
        except psycopg.Error as error:
            raise MigrationError(f"PostgreSQL does not do it: {_one_line(error)}") from error


def _applied(connection: psycopg.Connection[tuple[object, ...]]) -> dict[tuple[str, int], str]:
    found = connection.execute("SELECT to_regclass('public.toban_migrations') IS NOT NULL").fetchone()
    if found is None or not found[0]:
        return {}
    rows = connection.execute("SELECT schema, version, checksum FROM public.toban_migrations").fetchall()
    return {(cast(str, schema), cast(int, version)): cast(str, checksum) for schema, version, checksum in rows}


def _state(migration: Migration, checksum: str | None) -> str:
    if checksum is None:
        return "pending"
    return "applied" if checksum == migration.checksum else "changed"


def _refuse_changed(wanted: Sequence[Migration], applied: dict[tuple[str, int], str]) -> None:
    for migration in wanted:
        if _state(migration, applied.get((migration.schema, migration.version))) == "changed":
            raise MigrationError(
                f"{migration.label} was changed after it was applied: restore it and add a new file instead"
            )


def _apply(connection: psycopg.Connection[tuple[object, ...]], migration: Migration, *, grant: bool) -> None:
    try:
        with connection.transaction():
            connection.execute(migration.up)
            connection.execute(
                "INSERT INTO public.toban_migrations (schema, version, name, checksum) VALUES (%s, %s, %s, %s)",
                (migration.schema, migration.version, migration.name, migration.checksum),
            )
            if grant:
                # In the same transaction: a service that waits for the last migration finds its rights.
                privileges.apply(connection)
    except psycopg.Error as error:
        raise MigrationError(f"{migration.label} failed and was rolled back: {_one_line(error)}") from error


def _let_log_in(connection: psycopg.Connection[tuple[object, ...]], passwords: Mapping[str, str]) -> None:
    connection.execute("RESET ROLE")
    try:
        roles.let_log_in(connection, passwords)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedObject) as error:
        raise MigrationError(
            f"the schema is migrated, but passwords of roles are not set ({_one_line(error)}): use the URL of a superuser or "
            "of the login that created the roles, or let an administrator set them (docs/database-roles.md)"
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _database_url() -> str:
    path = os.environ.get("SCHEDULER_DATABASE_URL_FILE", "")
    url = Path(path).read_text(encoding="utf-8").strip() if path else os.environ.get("SCHEDULER_DATABASE_URL", "")
    if not url:
        raise MigrationError("SCHEDULER_DATABASE_URL: not set in the environment; set it to the PostgreSQL URL")
    check_database_url("SCHEDULER_DATABASE_URL_FILE" if path else "SCHEDULER_DATABASE_URL", url)
    return url


def passwords_from(folder: Path) -> dict[str, str]:
    """Passwords by role: the contents of the files `<role>_password`. Raises MigrationError when there is none, OSError for an unreadable one."""
    found = {
        role: (folder / f"{role}_password").read_text(encoding="utf-8").strip()
        for role in roles.ROLES
        if (folder / f"{role}_password").exists()
    }
    if not found or not all(found.values()):
        raise MigrationError(
            f"--passwords {folder}: needs files like {roles.COORDINATOR}_password, each with one password"
        )
    return found


def _up(arguments: Sequence[str]) -> int:
    passwords = passwords_from(Path(arguments[2])) if len(arguments) == 3 else {}
    labels = up(
        _database_url(),
        seeds=seeds_from(os.environ),
        passwords=passwords,
        say=lambda line: sys.stderr.write(f"{line}\n"),
    )
    for label in labels:
        sys.stdout.write(f"applied {label}\n")
    return 0


def _wait() -> int:
    wait(_database_url(), say=lambda line: sys.stderr.write(f"{line}\n"))
    return 0


def _status() -> int:
    states = status(_database_url())
    for one in states:
        sys.stdout.write(f"{one.state:8} {one.label}\n")
    return 1 if any(one.state in ("pending", "changed") for one in states) else 0


def _roles() -> int:
    sys.stdout.write(roles.script())
    return 0


def main(arguments: Sequence[str]) -> int:
    """The command: 0 when done (status: nothing pending), 1 when status finds something pending, 64 for wrong words, 78 for the rest."""
    commands: Mapping[tuple[str, ...], Callable[[], int]] = {
        ("up",): lambda: _up(arguments),
        ("up", "--passwords"): lambda: _up(arguments),
        ("status",): _status,
        ("wait",): _wait,
        ("roles",): _roles,
    }
    words = tuple(arguments[:2])
    if words not in commands or len(arguments) != (3 if len(words) == 2 else 1):
        sys.stderr.write("usage: python -m toban_store.migrate up [--passwords FOLDER]|status|wait|roles\n")
        return 64
    try:
        return commands[words]()
    except (TobanError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 78


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
