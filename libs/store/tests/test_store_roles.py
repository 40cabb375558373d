"""Roles on a real PostgreSQL: what each is refused, what each may, and how an installation of one role gets there."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from toban_stack.servers.binaries import find_postgres
from toban_store import migrate, privileges, roles
from toban_store.roles import COORDINATOR, EMIT, LOG_ARCHIVER, OWNER, READONLY
from toban_testing.postgres import PostgresTestServer, as_role
from toban_testing.servers import SessionServers

pytestmark = pytest.mark.pg_versions
PASSWORD = "k1DF8s-9"
Session = Callable[[str], psycopg.Connection]
TODAY = "to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"

ANYBODY = [
    "CREATE TABLE scheduler.mine (x int)",
    "CREATE TABLE public.mine (x int)",
    "CREATE SCHEMA mine",
    "CREATE ROLE mine",
    "COPY (SELECT 1) TO PROGRAM 'cat'",
    "SET ROLE toban_owner",
    "DROP TABLE scheduler.job_events",
    "ALTER TABLE scheduler.runs_live DISABLE TRIGGER ALL",
    "TRUNCATE scheduler.runs_live",
    "UPDATE scheduler.admin_action_log SET actor = 'somebody else'",
    "DELETE FROM scheduler.admin_action_log",
    "TRUNCATE scheduler.admin_action_log",
    "INSERT INTO scheduler.admin_action_log (at, actor, action, target) VALUES (now() - interval '1 day', 'a', 'b', 'c')",
    "UPDATE scheduler.runs_history SET state = 'SUCCEEDED'",
    "DELETE FROM scheduler.runs_history",
    "UPDATE scheduler.run_transitions SET to_state = 'PENDING'",
    "DELETE FROM scheduler.leader",
    "UPDATE public.toban_migrations SET checksum = ''",
    "UPDATE logs.chunks SET data = ''",
    "DELETE FROM logs.chunks",
    "DROP TABLE logs.chunks",
    "SELECT scheduler.check_transition()",
    "SELECT logs.uncovered(current_date)",
    f"DO $$ BEGIN EXECUTE 'DROP TABLE scheduler.job_events_' || {TODAY}; END $$",
    f"DO $$ BEGIN EXECUTE 'DELETE FROM scheduler.runs_history_' || {TODAY}; END $$",
]
REFUSED = {
    COORDINATOR: ["SELECT 1 FROM logs.chunks", "SELECT logs.ensure_partitions(current_date, current_date)"],
    LOG_ARCHIVER: [
        "SELECT 1 FROM scheduler.leader",
        "SELECT 1 FROM scheduler.settings",
        "SELECT scheduler.drop_partition(current_date)",
        "SELECT scheduler.emit_event('a')",
    ],
    READONLY: [
        "INSERT INTO scheduler.settings (name, value) VALUES ('a', '1')",
        "UPDATE scheduler.leader SET epoch = 9",
        *(f"SELECT {column} FROM scheduler.executors" for column in ("key_hash", "secret_hash", "nonce", "nonces")),
        "SELECT data FROM logs.chunks",
        "SELECT scheduler.emit_event('a')",
        "SELECT scheduler.drop_partition(current_date)",
        "SELECT nextval('scheduler.run_id_seq')",
        "SELECT worker_id FROM scheduler.executors FOR UPDATE",
    ],
    EMIT: [
        "SELECT 1 FROM scheduler.events",
        "INSERT INTO scheduler.events (event_type) VALUES ('a')",
        "SELECT 1 FROM logs.tokens",
        "SELECT scheduler.ensure_partitions(current_date, current_date)",
        "SELECT scheduler.current_timeline()",
    ],
}
ALLOWED = {
    COORDINATOR: [
        "SELECT scheduler.ensure_partitions(current_date + 20, current_date + 21)",
        "SELECT scheduler.drop_partition(current_date)",
        "INSERT INTO scheduler.admin_action_log (actor, action, target) VALUES ('a', 'b', 'c')",
        "SELECT id, at, actor FROM scheduler.admin_action_log",
    ],
    LOG_ARCHIVER: [
        "SELECT logs.ensure_partitions(current_date + 20, current_date + 21)",
        "SELECT logs.drop_archived(current_date, 1), logs.forget_day(current_date, 1)",
    ],
    READONLY: [
        "SELECT count(*) FROM scheduler.job_runs, scheduler.settings, scheduler.admin_action_log",
        "SELECT worker_id, state, slots FROM scheduler.executors",
        "SELECT run_id, line_count FROM logs.chunks",
        "SELECT version FROM public.toban_migrations",
    ],
    EMIT: ["SELECT scheduler.emit_event('order.paid', '{}', 'key')"],
}


@pytest.fixture
def session(pg_url: str) -> Iterator[Session]:
    """`session(role)` is a connection that acts as this role."""
    opened: dict[str, psycopg.Connection] = {}

    def connect(role: str) -> psycopg.Connection:
        if role not in opened:
            opened[role] = psycopg.connect(as_role(pg_url, role), autocommit=True)
            # As a login of this role: it cannot leave it by SET ROLE.
            opened[role].execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(role)))
        return opened[role]

    yield connect
    for connection in opened.values():
        connection.close()


@pytest.mark.parametrize("role", REFUSED)
def test_each_role_is_refused_what_its_service_does_not_do(pg_major: int, session: Session, role: str) -> None:
    done = []
    for statement in [*ANYBODY, *REFUSED[role]]:
        try:
            session(role).execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            continue
        done.append(statement)
    assert done == []


@pytest.mark.parametrize("role", ALLOWED)
def test_each_role_may_do_its_work(pg_major: int, session: Session, role: str) -> None:
    for statement in ALLOWED[role]:
        session(role).execute(statement.encode())


def test_partitions_that_services_make_belong_to_the_owner(pg_major: int, pg_url: str, session: Session) -> None:
    session(COORDINATOR).execute("SELECT scheduler.ensure_partitions('2031-01-01', '2031-01-01')")
    session(LOG_ARCHIVER).execute("SELECT logs.ensure_partitions('2031-01-01', '2031-01-01')")
    with psycopg.connect(pg_url) as connection:
        assert owners(connection) == {OWNER}


def test_a_table_of_the_caller_does_not_stand_in_for_the_catalogue(pg_major: int, session: Session) -> None:
    """The functions look for names in pg_catalog first, and in the schema of temporary tables last."""
    session(COORDINATOR).execute("CREATE TEMP TABLE pg_inherits AS SELECT * FROM pg_catalog.pg_inherits LIMIT 0")
    session(COORDINATOR).execute("SET search_path = pg_temp, pg_catalog")
    dropped = session(COORDINATOR).execute("SELECT scheduler.drop_partition('2100-01-01')").fetchone()
    assert dropped is not None and dropped[0] is not None


def test_every_function_has_a_fixed_search_path_and_no_public_caller(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        rows = connection.execute(
            "SELECT proname, prosecdef, proconfig FROM pg_proc WHERE pronamespace IN ('scheduler'::regnamespace, 'logs'::regnamespace)"
        ).fetchall()
        assert not [name for name, _, settings in rows if not str(settings).startswith("['search_path=pg_catalog")]
        definers = {name for name, definer, _ in rows if definer}
        assert definers == {
            "emit_event",
            "ensure_partitions",
            "drop_partition",
            "drop_archived",
            "forget_day",
            "chain_audit",
            "forget_audit",
        }
        assert not [
            name for name, definer, settings in rows if definer and "search_path=pg_catalog, pg_temp" not in settings
        ]
        public = [right for right in privileges.read(connection).rights if right.role == "public"]
        assert public == []


def test_the_list_decides_on_every_object_and_is_what_is_granted(pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        found = privileges.read(connection)
        assert privileges.undecided(found) == [], "give each a line in toban_store.privileges"
        assert privileges.wanted(found) == found.rights
        listed = {*privileges.TABLES, *privileges.SEQUENCES, *privileges.FUNCTIONS}
        assert listed == {*found.tables, *found.sequences, *found.functions} - {privileges.MIGRATIONS}
        connection.execute(
            "CREATE TABLE scheduler.undecided (id bigint); CREATE FUNCTION logs.f() RETURNS int AS 'SELECT 1' LANGUAGE sql"
        )
        assert privileges.undecided(privileges.read(connection)) == ["logs.f()", "scheduler.undecided"]


def test_up_brings_rights_back(pg_major: int, pg_empty_url: str) -> None:
    migrate.up(pg_empty_url)
    with psycopg.connect(pg_empty_url, autocommit=True) as connection:
        before = privileges.read(connection).rights
        connection.execute("REVOKE INSERT ON scheduler.runs_live FROM toban_coordinator")
        connection.execute("GRANT DELETE, INSERT ON scheduler.admin_action_log TO toban_coordinator")
        connection.execute("GRANT SELECT ON scheduler.executors TO toban_readonly")
        connection.execute("GRANT EXECUTE ON FUNCTION scheduler.drop_partition(date) TO PUBLIC")
        migrate.up(pg_empty_url)
        assert privileges.read(connection).rights == before
        # A database that a newer release migrated has rights by that release's list.
        connection.execute("INSERT INTO public.toban_migrations VALUES ('scheduler', 9999, 'future', 'x')")
        connection.execute("GRANT DELETE ON scheduler.admin_action_log TO toban_coordinator")
        migrate.up(pg_empty_url)
        assert privileges.read(connection).rights != before


def test_an_installation_of_one_superuser_gets_an_owner(pg_major: int, pg_empty_url: str) -> None:
    with psycopg.connect(pg_empty_url, autocommit=True) as connection:
        migrate_as_before_roles(connection)
        assert owners(connection) == {"toban"}
        said: list[str] = []
        migrate.up(pg_empty_url, say=said.append)
        assert said == [] and owners(connection) == {OWNER}
        assert privileges.wanted(privileges.read(connection)) == privileges.read(connection).rights


@pytest.fixture(scope="module")
def own_servers() -> Iterator[SessionServers]:
    """Servers whose roles no other test uses."""
    servers = SessionServers()
    yield servers
    servers.stop()


@pytest.fixture
def own_server(own_servers: SessionServers, pg_major: int) -> Iterator[PostgresTestServer]:
    """A server without any role of ours."""
    server = own_servers.postgres(pg_major)
    yield server
    with psycopg.connect(server.url, autocommit=True) as administrator:
        for role in roles.ROLES:
            administrator.execute(f"DROP ROLE IF EXISTS {role}".encode())


@pytest.fixture
def tenant(own_server: PostgresTestServer) -> Iterator[Callable[[str], str]]:
    """`tenant("CREATEROLE")` is the URL of a login with that attribute, for a database that it owns."""
    url = own_server.empty()
    name = f"tenant_{os.getpid()}"

    def make(attribute: str) -> str:
        with psycopg.connect(url, autocommit=True) as administrator:
            administrator.execute(f"CREATE ROLE {name} LOGIN {attribute} PASSWORD '{PASSWORD}'".encode())
            administrator.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                    sql.Identifier(administrator.info.dbname), sql.Identifier(name)
                )
            )
        return make_conninfo(url, user=name, password=PASSWORD)

    yield make
    own_server.drop(url)
    with psycopg.connect(own_server.url, autocommit=True) as administrator:
        for role in (*roles.ROLES, name):
            administrator.execute(f"DROP ROLE IF EXISTS {role}".encode())


def test_a_login_that_may_create_roles_sets_everything_up(pg_major: int, tenant: Callable[[str], str]) -> None:
    url, said = tenant("CREATEROLE"), list[str]()
    migrate.up(url, say=said.append, passwords={COORDINATOR: PASSWORD})
    assert said == []
    with psycopg.connect(url, autocommit=True) as connection:
        assert owners(connection) == {OWNER}
        assert privileges.wanted(privileges.read(connection)) == privileges.read(connection).rights
        assert not superusers(connection)
    works_as_coordinator(make_conninfo(url, user=COORDINATOR, password=PASSWORD))
    works_as_coordinator(url)
    migrate.up(url, say=said.append)
    assert said == []


def test_a_login_that_may_not_create_roles_goes_on_until_an_administrator_made_them(
    pg_major: int, own_server: PostgresTestServer, tenant: Callable[[str], str]
) -> None:
    url, said = tenant(""), list[str]()
    migrate.up(url, say=said.append)
    [line] = said
    assert "the role toban_owner is missing" in line and "migrate roles` prints the SQL" in line
    with psycopg.connect(url, autocommit=True) as connection:
        login = connection.info.user
        assert owners(connection) == {login}
        works_as_coordinator(url)
        with pytest.raises(migrate.MigrationError, match="passwords of roles are not set"):
            migrate.up(url, passwords={COORDINATOR: PASSWORD})

        administrator = make_conninfo(own_server.url, dbname=connection.info.dbname)
        for _ in range(2):
            psql(pg_major, administrator, roles.script())
        psql(pg_major, administrator, f"ALTER ROLE {COORDINATOR} LOGIN PASSWORD '{PASSWORD}'")
        assert owners(connection) == {OWNER}
        works_as_coordinator(url)
        migrate.up(url, say=said.append)
        assert said == [line], "it acts as toban_owner now"
        works_as_coordinator(make_conninfo(url, user=COORDINATOR, password=PASSWORD))
        psql(pg_major, administrator, f"REVOKE toban_owner FROM {login}")
    with pytest.raises(migrate.MigrationError, match="as toban_owner or an administrator"):
        migrate.up(url, say=said.append)
    assert f"{login} is no member of toban_owner" in said[-1]


def test_the_command_sets_passwords_from_files(
    pg_major: int,
    pg_empty_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", pg_empty_url)
    assert migrate.main(["up", "--passwords", str(tmp_path)]) == 78
    assert "needs files like toban_coordinator_password" in capsys.readouterr().err
    for role in (COORDINATOR, LOG_ARCHIVER):
        (tmp_path / f"{role}_password").write_text(f"{PASSWORD}{role}\n")
    assert migrate.main(["up", "--passwords", str(tmp_path)]) == 0
    works_as_coordinator(make_conninfo(pg_empty_url, user=COORDINATOR, password=PASSWORD + COORDINATOR))
    with psycopg.connect(pg_empty_url, autocommit=True) as connection:
        stored = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", [COORDINATOR]).fetchone()
        assert stored is not None and stored[0].startswith("SCRAM-SHA-256$")
        connection.execute("ALTER ROLE toban_coordinator NOLOGIN; ALTER ROLE toban_log_archiver NOLOGIN")
    assert migrate.main(["roles"]) == 0
    assert "CREATE ROLE" in capsys.readouterr().out


def migrate_as_before_roles(connection: psycopg.Connection) -> None:
    """The schema of the release before roles, made and owned by the login itself."""
    connection.execute(migrate._TABLE)
    for migration in migrate.read_migrations():
        if migration.version < 9:
            migrate._apply(connection, migration, grant=False)


def owners(connection: psycopg.Connection) -> set[str]:
    """Who owns anything of Toban."""
    rows = connection.execute(
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace::regnamespace::text IN ('scheduler', 'logs')"
        " OR relname = 'toban_migrations'"
        " UNION SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname IN ('scheduler', 'logs')"
        " UNION SELECT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace::regnamespace::text IN ('scheduler', 'logs')"
        " UNION SELECT pg_get_userbyid(typowner) FROM pg_type WHERE typnamespace::regnamespace::text IN ('scheduler', 'logs')"
    )
    return {str(row[0]) for row in rows}


def superusers(connection: psycopg.Connection) -> list[str]:
    """Roles of Toban that are more than plain ones."""
    rows = connection.execute(
        "SELECT rolname FROM pg_roles WHERE rolname LIKE 'toban\\_%%' AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls)",
        [],
    )
    return [str(row[0]) for row in rows]


def works_as_coordinator(url: str) -> None:
    """A login does what a coordinator does."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ALLOWED[COORDINATOR]:
            connection.execute(statement.encode())


def psql(major: int, url: str, script: str) -> None:
    """As an administrator runs the printed SQL."""
    command = [str(find_postgres(major).folder / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", url]
    subprocess.run(command, input=script, text=True, check=True, capture_output=True)
