"""One release beside the next: the last tagged version on today's schema, today's code on the schema of that version, and a rolling upgrade.

TOBAN_UPGRADE_FROM names another revision of git to come from.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import psycopg
import pytest

from toban_stack.processes import alive
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_store import migrate
from toban_store.queries import FRAGMENTS, read
from toban_testing.rolling_load import (
    begin_ticks,
    check_logs,
    check_once,
    check_slots,
    end_ticks,
    wait_for_ticks,
)
from toban_testing.sql_statements import positional
from toban_testing.stack_fixtures import admin_of

ROOT = Path(__file__).resolve().parents[2]
RELEASE = re.compile(r"v\d+\.\d+\.\d+")
STORE = "libs/store/src/toban_store"
# To come from until a version is tagged: the first state that has every part which an upgrade goes through.
BEFORE_TAGS = "a06a2874a1f77dba1c28fcafbb316bc69091791b"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout


def last_release() -> str:
    """The revision to come from. Skips the test without git and in a shallow clone; anything else that is wrong fails it."""
    if wanted := os.environ.get("TOBAN_UPGRADE_FROM"):
        return wanted
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("there is no git here, so there is no release to come from")
    if git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.skip("this clone is shallow, so there is no release to come from: `git fetch --unshallow --tags`")
    tags = git("tag", "--merged", "HEAD", "--sort=-version:refname").decode().split()
    found = [tag for tag in tags if RELEASE.fullmatch(tag)] or [BEFORE_TAGS]
    git("merge-base", "--is-ancestor", found[0], "HEAD")
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
    files = [path for path in old.glob("*/*/src/**/*.sql") if "migrations" not in path.parts]
    assert files
    with psycopg.connect(pg_url, autocommit=True) as connection:
        for path in files:
            queries = read(path, shared=old / STORE / FRAGMENTS)
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
    """On the schema of the last release it says what is missing; a service that starts after `migrate wait` never meets such a schema."""
    migrate.up(pg_empty_url, folder=old / STORE / "migrations")
    missing = [state for state in migrate.status(pg_empty_url) if state.state == "pending"]
    if missing:
        with pytest.raises(migrate.MigrationError, match=missing[0].label):
            migrate.check(pg_empty_url)
    migrate.up(pg_empty_url)
    migrate.check(pg_empty_url)


@pytest.mark.e2e
def test_a_rolling_upgrade_under_load(old: Path, tmp_path: Path) -> None:
    """Old services go on while the schema is migrated and are replaced one by one by new ones: nothing is lost, nothing comes twice."""
    record, home = tmp_path / "record", tmp_path / "home"
    # The jobs write to a file of this user, in class `shared` as those of the old executors.
    stack = Stack(home=home, admin_webs=0, environment={"SCHEDULER_SLOTS": "8", "SCHEDULER_ISOLATION": "shared"})
    try:
        start_old(old, home)
        with admin_of(stack) as admin:
            begin_ticks(admin, record)
            # The old services go on as the superuser that owned everything; the new ones have roles of their own.
            stack.migrate()
            # Log-archivers first: those of the last release refuse the tickets of this one, and drop their lines.
            for name in [
                one
                for service in ("log-archiver", "coordinator", "executor")
                for one in stack.processes()
                if one.startswith(service)
            ]:
                its = stack.processes()[name]
                stack.kill(name, signal.SIGTERM)
                assert wait_until(lambda its=its: not alive(its), 30), f"{name} does not end"
                stack.start(name)
                wait_for_ticks(admin, record, 40, seconds=30)
            runs = end_ticks(stack, admin)
            check_slots(runs)
            check_once(runs, record)
            check_logs(admin, [run["id"] for run in runs][::10])
    finally:
        stack.down()


def start_old(old: Path, home: Path) -> None:
    """A stack of the release, started by its own code, as it would have been."""
    sources = os.pathsep.join(str(path) for path in old.glob("*/*/src"))
    start = (
        "import sys, pathlib, toban_stack.stack as its; its.Stack(home=pathlib.Path(sys.argv[1]), admin_webs=0).up()"
    )
    environment = os.environ | {"PYTHONPATH": sources, "SCHEDULER_SLOTS": "8"}
    subprocess.run([sys.executable, "-c", start, str(home)], env=environment, check=True, timeout=120)
