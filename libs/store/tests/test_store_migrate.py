"""Migrations: once, in order, whole or not at all, by one runner at a time."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import psycopg
import pytest

from toban_store import migrate
from toban_store.migrate import MigrationError

pytestmark = pytest.mark.pg_versions

FIRST = "-- migrate:up\nCREATE SCHEMA demo; CREATE TABLE demo.a (x int);\n-- migrate:down\nDROP SCHEMA demo CASCADE;\n"
BROKEN = "-- migrate:up\nCREATE TABLE demo.b (x int); SELECT nonsense;\n-- migrate:down\nDROP TABLE demo.b;\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "0001_first.sql").write_text(FIRST)
    return tmp_path


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('demo')")
        return {str(row[0]) for row in rows}


def test_up_twice_applies_once(pg_major: int, pg_empty_url: str) -> None:
    labels = [one.label for one in migrate.read_migrations()]
    assert migrate.up(pg_empty_url) == labels
    assert migrate.up(pg_empty_url) == []
    migrate.check(pg_empty_url)
    assert {one.state for one in migrate.status(pg_empty_url)} == {"applied"}


def test_every_migration_goes_down_and_up_again(pg_major: int, pg_empty_url: str) -> None:
    migrate.up(pg_empty_url)
    with psycopg.connect(pg_empty_url, autocommit=True) as connection:
        for path in sorted(migrate.MIGRATIONS.glob("*/*.sql"), reverse=True):
            connection.execute(path.read_text().split("-- migrate:down")[1])
        connection.execute("DROP TABLE public.toban_migrations")
    assert migrate.up(pg_empty_url)


def test_runners_at_the_same_time_apply_once(pg_major: int, pg_empty_url: str) -> None:
    with ThreadPoolExecutor(max_workers=4) as threads:
        results = list(threads.map(lambda _: migrate.up(pg_empty_url), range(4)))
    assert sorted(len(labels) for labels in results) == [0, 0, 0, len(migrate.read_migrations())]


def test_a_changed_file_is_refused(pg_major: int, pg_empty_url: str, folder: Path) -> None:
    migrate.up(pg_empty_url, folder=folder)
    (folder / "demo" / "0001_first.sql").write_text(FIRST.replace("x int", "x bigint"))
    with pytest.raises(MigrationError, match="demo/0001_first was changed"):
        migrate.up(pg_empty_url, folder=folder)
    with pytest.raises(MigrationError, match="changed"):
        migrate.check(pg_empty_url, folder=folder)


def test_a_failing_file_leaves_nothing(pg_major: int, pg_empty_url: str, folder: Path) -> None:
    (folder / "demo" / "0002_second.sql").write_text(BROKEN)
    with pytest.raises(MigrationError, match="0002_second failed"):
        migrate.up(pg_empty_url, folder=folder)
    assert tables(pg_empty_url) == {"a"}
    assert [one.state for one in migrate.status(pg_empty_url, folder=folder)] == ["applied", "pending"]


def test_a_database_ahead_of_this_code_is_fine(pg_major: int, pg_empty_url: str, folder: Path, tmp_path: Path) -> None:
    migrate.up(pg_empty_url, folder=folder)
    older = tmp_path / "older"
    older.mkdir()
    migrate.check(pg_empty_url, folder=older)
    assert [one.state for one in migrate.status(pg_empty_url, folder=older)] == ["newer"]


def test_status_of_an_empty_database_changes_nothing(pg_major: int, pg_empty_url: str) -> None:
    assert {one.state for one in migrate.status(pg_empty_url)} == {"pending"}
    with pytest.raises(MigrationError, match="is pending: run"):
        migrate.check(pg_empty_url)


def test_the_command(
    pg_major: int, pg_empty_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", pg_empty_url)
    assert migrate.main(["status"]) == 1
    assert migrate.main(["up"]) == 0
    assert migrate.main(["status"]) == 0
    assert migrate.main(["down"]) == 64
    assert "applied scheduler/0001_spine" in capsys.readouterr().out


def test_the_command_without_an_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    monkeypatch.delenv("SCHEDULER_DATABASE_URL", raising=False)
    assert migrate.main(["up"]) == 78
    monkeypatch.setenv("SCHEDULER_DATABASE_URL", f"postgresql://x@127.0.0.1:{free_port}/x")
    assert migrate.main(["up"]) == 78
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "SCHEDULER_DATABASE_URL",
        "cannot connect to PostgreSQL",
    ]


def test_it_waits_until_another_process_has_migrated(pg_major: int, pg_empty_url: str, folder: Path) -> None:
    said: Queue[str] = Queue()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(migrate.wait, pg_empty_url, say=said.put, folder=folder)
        assert said.get(timeout=60) == "waiting: 1 migrations are pending, the first is demo/0001_first"
        assert not waiting.done()
        migrate.up(pg_empty_url, folder=folder)
        waiting.result(timeout=60)
    assert said.empty()
    (folder / "demo" / "0001_first.sql").write_text(FIRST.replace("int", "bigint"))
    with pytest.raises(MigrationError, match="demo/0001_first is changed"):
        migrate.wait(pg_empty_url, say=said.put, folder=folder)


def test_it_waits_for_a_server_that_is_away(pg_major: int, free_port: int, folder: Path) -> None:
    class Enough(Exception):
        """The test has heard it."""

    def say(line: str) -> None:
        assert line.startswith("waiting: cannot connect to PostgreSQL")
        raise Enough

    with pytest.raises(Enough):
        migrate.wait(f"postgresql://toban:x@127.0.0.1:{free_port}/toban", say=say, folder=folder)


def test_a_role_without_rights_is_told_what_it_needs(pg_major: int, pg_empty_url: str, folder: Path) -> None:
    """As the first role of many managed servers: it may connect and nothing else."""
    role = f"weak_{pg_major}_{os.getpid()}"
    with psycopg.connect(pg_empty_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'k1DF8s'")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    try:
        weak = psycopg.conninfo.make_conninfo(pg_empty_url, user=role, password="k1DF8s")
        with pytest.raises(
            MigrationError, match=r"permission denied for schema public.* as toban_owner or an administrator"
        ):
            migrate.up(weak, folder=folder)
        migrate.up(pg_empty_url, folder=folder)
        with pytest.raises(
            MigrationError, match=r"permission denied for table toban_migrations.* as toban_owner or an administrator"
        ):
            migrate.status(weak, folder=folder)
    finally:
        with psycopg.connect(pg_empty_url, autocommit=True) as owner:
            owner.execute(f"DROP ROLE {role}")


def test_an_old_server_is_refused_with_one_line() -> None:
    with pytest.raises(MigrationError, match=r"PostgreSQL 14\.9 is too old: Toban needs 15 or newer"):
        migrate.check_server(140009)
    migrate.check_server(150000)


@pytest.mark.parametrize(
    ("name", "text"),
    [("first.sql", FIRST), ("0002_x.sql", "SELECT 1;"), ("0001_again.sql", FIRST), ("0003_x.sql", "-- migrate:up\n")],
)
def test_malformed_files_are_refused(folder: Path, name: str, text: str) -> None:
    (folder / "demo" / name).write_text(text)
    with pytest.raises(MigrationError):
        migrate.read_migrations(folder)


def late_setting(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT value, version, updated_by FROM scheduler.settings").fetchall()


@pytest.mark.seed(58)
def test_the_environment_seeds_a_setting_that_was_never_stored(pg_major: int, pg_empty_url: str) -> None:
    variable = "SCHEDULER_SKIP_LATE_RUNS_AFTER_SECONDS"
    migrate.up(pg_empty_url, seeds=migrate.seeds_from({}))
    assert late_setting(pg_empty_url) == []
    migrate.up(pg_empty_url, seeds=migrate.seeds_from({variable: "90"}))
    assert late_setting(pg_empty_url) == [(90, 1, "migration")]
    migrate.up(pg_empty_url, seeds=migrate.seeds_from({variable: "5"}))
    assert late_setting(pg_empty_url) == [(90, 1, "migration")], "what operators or an earlier seed stored stays"


@pytest.mark.parametrize("text", ["-1", "soon", "[]", "1e99"])
def test_a_seed_that_is_no_value_stops_the_migration(text: str) -> None:
    with pytest.raises(MigrationError, match="SCHEDULER_SKIP_LATE_RUNS_AFTER_SECONDS: "):
        migrate.seeds_from({"SCHEDULER_SKIP_LATE_RUNS_AFTER_SECONDS": text})


@pytest.mark.parametrize(
    "url", ["postgres//u:SECRETPW@h/x", "postgresql://u:SECRETPW@h/x?wrong=1", "postgresql://u:%zzSECRETPW@h/x"]
)
@pytest.mark.parametrize("from_file", [False, True])
def test_a_wrong_url_is_named_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, from_file: bool
) -> None:
    (tmp_path / "url").write_text(url)
    name = "SCHEDULER_DATABASE_URL_FILE" if from_file else "SCHEDULER_DATABASE_URL"
    monkeypatch.delenv("SCHEDULER_DATABASE_URL", raising=False)
    monkeypatch.setenv(name, str(tmp_path / "url") if from_file else url)
    assert migrate.main(["status"]) == 78
    said = capsys.readouterr().err
    assert said.startswith("SCHEDULER_DATABASE_URL") and "SECRETPW" not in said and said.count("\n") == 1
