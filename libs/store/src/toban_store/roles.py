"""PostgreSQL roles (docs/database-roles.md): who owns the schemas, and a role of its own for each service.

A role has no login by itself: `let_log_in` gives it a password, or an administrator grants it to a login of the site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from toban_store import queries

OWNER, COORDINATOR, LOG_ARCHIVER = "toban_owner", "toban_coordinator", "toban_log_archiver"
READONLY, EMIT = "toban_readonly", "toban_emit"
ROLES: Mapping[str, str] = {
    OWNER: "owns the schemas; migrations run as it",
    COORDINATOR: "coordinators: reads and writes schema scheduler",
    LOG_ARCHIVER: "log-archivers: reads and writes schema logs",
    READONLY: "dashboards: reads both schemas, without job output and keys",
    EMIT: "applications: calls scheduler.emit_event",
}
Connection = psycopg.Connection[Any]
_sql = queries.load(__name__)
_SCRIPT = """\
-- PostgreSQL roles of Toban (docs/database-roles.md). Safe to repeat, also while services run.
-- Run it in Toban's database, outside of a transaction, as a superuser or as a role with CREATEROLE that owns the database:
--   python -m toban_store.migrate roles | psql -v ON_ERROR_STOP=1 "$ADMINISTRATOR_URL"
{roles}

{create};

{admit};

{transfer};

-- Next, let a login act as each role. Either the role itself; psql asks for its password:
--   ALTER ROLE toban_owner LOGIN;        \\password toban_owner
--   ALTER ROLE toban_coordinator LOGIN;  \\password toban_coordinator
--   ALTER ROLE toban_log_archiver LOGIN; \\password toban_log_archiver
-- or a login that exists:  GRANT toban_coordinator TO some_login;
-- Then run `python -m toban_store.migrate up` as toban_owner: it grants each role what it needs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleState:
    """How a login stands to the roles: see block `state`."""

    login: str
    may_create: bool
    missing: Sequence[str]
    may_act: bool
    may_make: bool
    foreign_objects: int

    @property
    def obstacle(self) -> str:
        """Why this login cannot work as toban_owner; empty when it can."""
        if OWNER in self.missing:
            return f"the role {OWNER} is missing, and {self.login} may not create roles"
        if not self.may_act:
            return f"{self.login} is no member of {OWNER}"
        if self.foreign_objects:
            return f"{self.foreign_objects} objects of Toban do not belong to {OWNER}"
        return "" if self.may_make else f"{OWNER} may not create schemas in this database"


def script() -> str:
    """The SQL that an administrator runs where the login of migrations may not create roles."""
    listed = "\n".join(f"--   {name:19}{purpose}" for name, purpose in ROLES.items())
    return _SCRIPT.format(roles=listed, create=_sql.create, admit=_sql.admit, transfer=_sql.transfer)


def act_as_owner(connection: Connection, *, say: Callable[[str], object]) -> None:
    """Makes what is missing where this login may, then acts as toban_owner for the rest of the session.

    Where that is not possible the login goes on as itself, and `say` gets the reason with the remedy. The connection is in autocommit.
    """
    if _state(connection).may_create:
        try:
            for block in (_sql.create, _sql.admit, _sql.transfer):
                connection.execute(block.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            say(f"roles are not set up completely: {' '.join(str(error).split())}")
    state = _state(connection)
    if obstacle := state.obstacle:
        say(
            f"migrations run as {state.login}: {obstacle}. `python -m toban_store.migrate roles` prints the SQL "
            "for an administrator; until then services share their rights (docs/database-roles.md)"
        )
        return
    connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(OWNER)))


def let_log_in(connection: Connection, passwords: Mapping[str, str]) -> None:
    """Each role -> may log in with its password. The server gets a SCRAM verifier, so that no log has the password.

    Raises psycopg.errors.InsufficientPrivilege when this session may not alter the role.
    """
    for role, password in passwords.items():
        verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
        statement = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
        connection.execute(statement.format(sql.Identifier(role), sql.Literal(verifier.decode())))


def _state(connection: Connection) -> RoleState:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_sql.state.encode(), {"roles": list(ROLES)}).fetchone()
    assert row is not None, "a session has a role"
    return RoleState(**row)
