"""One release beside the next: the last tagged version on today's schema, today's code on the schema of that version, and a rolling upgrade.

TOBAN_UPGRADE_FROM names another revision of git to come from, for trying this out.
"""

import os
import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import psycopg
import pytest

from toban_stack.stack import Stack
from toban_store import migrate
from toban_store.queries import positional, read
from toban_testing.rolling import (
    begin_ticks,
    check_logs,
    check_once,
    check_slots,
    end_ticks,
    stop_in_order,
    wait_for_ticks,
)
from toban_testing.stacks import admin_of, running_stack

ROOT = Path(__file__).resolve().parents[2]
RELEASE = re.compile(r"v\d+\.\d+\.\d+")
STORE = "libs/store/src/toban_store"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


def last_release() -> str:
    """The revision to come from; skips the test, and says so, when nothing was released yet."""
    if wanted := os.environ.get("TOBAN_UPGRADE_FROM"):
        return wanted
    try:
        tags = git("tag", "--merged", "HEAD", "--sort=-version:refname").decode().split()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the history of this clone cannot be read ({error}), so there is no release to come from")
    found = [tag for tag in tags if RELEASE.fullmatch(tag)]
    if not found:
        pytest.skip(
            "no version is tagged yet (vX.Y.Z), so there is no release to come from: these tests begin with the first tag"
        )
    return found[0]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the last release."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=BytesIO(git("archive", last_release()))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_the_last_release_on_this_schema(old: Path, pg_url: str) -> None:
    """Each statement of the old code is one that today's schema understands."""
    failed = []
    files = [path for path in (old / STORE).rglob("*.sql") if "migrations" not in path.parts]
    assert files
    with psycopg.connect(pg_url, autocommit=True) as connection:
        for path in files:
            queries = read(path)
            for name in queries:
                sql, _ = positional(getattr(queries, name))
                result = connection.pgconn.prepare(f"{path.parent.name} {path.stem} {name}".encode(), sql.encode())
                if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                    failed.append(f"{path.name} {name}: {result.get_error_message()}")
    assert failed == []


def test_migrations_of_the_last_release_are_as_they_were(old: Path) -> None:
    for path in (old / STORE / "migrations").rglob("*.sql"):
        now = ROOT / STORE / "migrations" / path.parent.name / path.name
        assert now.read_bytes() == path.read_bytes(), f"{path.name} was released and must not change"


def test_this_code_waits_for_its_schema(old: Path, pg_empty_url: str) -> None:
    """On the schema of the last release it says what is missing; whoever starts after `migrate wait` never meets such a schema."""
    migrate.up(pg_empty_url, folder=old / STORE / "migrations")
    missing = [state for state in migrate.status(pg_empty_url) if state.state == "pending"]
    if missing:
        with pytest.raises(migrate.MigrationError, match=missing[0].label):
            migrate.check(pg_empty_url)
    migrate.up(pg_empty_url)
    migrate.check(pg_empty_url)


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_rolling_upgrade_under_load(old: Path, tmp_path: Path) -> None:
    """Old services on the new schema, replaced one by one by new ones: nothing is lost, nothing comes twice."""
    sources = os.pathsep.join(str(path) for path in (*old.glob("libs/*/src"), *old.glob("services/*/src")))
    record, home = tmp_path / "record", tmp_path / "home"
    with running_stack(home, slots=8, environment={"PYTHONPATH": sources}) as stack, admin_of(stack) as admin:
        begin_ticks(admin, record)
        new = Stack(home=home, admin_webs=0, environment={"SCHEDULER_SLOTS": "8"})
        for name in [
            name for name in stack.processes() if name.startswith(("coordinator", "log-archiver", "executor"))
        ]:
            stop_in_order(stack, name)
            new.start(name)
            wait_for_ticks(admin, record, 40, seconds=30)
        runs = end_ticks(stack, admin)
        check_slots(runs)
        check_once(runs, record)
        check_logs(admin, [run["id"] for run in runs][::10])
