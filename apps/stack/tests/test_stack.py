"""The launcher over real servers and small stand-ins for the services: up, status, kill, start, down."""

import re
import signal
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from toban_stack import __main__ as prompt
from toban_stack import health, processes
from toban_stack.errors import ProcessFailed, StackError
from toban_stack.services import MODULES
from toban_stack.stack import Stack
from toban_stack.state_file import StateFile
from toban_stack.supervisor.client import SUPERVISOR
from toban_stack.supervisor.policy import Backoff
from toban_stack.wait import wait_until

STAND_IN = """
    import http.server, json, os, subprocess, sys
    if os.path.exists(os.environ["STAND_IN_FAILS"]):
        sys.exit("no such thing as " + os.environ["SCHEDULER_NODE_ID"])
    subprocess.Popen(["sleep", "300"], start_new_session=True)  # a job that outlives its executor
    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            with open(os.environ["SCHEDULER_ADMIN_TOKEN_FILE"]) as token:
                known = self.headers["Authorization"] == "Bearer " + token.read()
            self.send_response(200 if known else 401)
            self.end_headers()
            if known:
                self.wfile.write(json.dumps({"status": "ok", "checks": {}}).encode())
        def log_message(self, *arguments): pass
    server = http.server.HTTPServer(("127.0.0.1", int(os.environ["SCHEDULER_ADMIN_PORT"])), Health)
    folder = os.environ.get("SCHEDULER_STATE_DIR", os.path.dirname(os.environ["SCHEDULER_READY_FILE"]))
    with open(folder + "/environment", "w") as file:
        json.dump(dict(os.environ), file)
    with open(os.environ["SCHEDULER_READY_FILE"] + ".part", "w") as file:
        json.dump({"pid": os.getpid()}, file)
    os.rename(file.name, os.environ["SCHEDULER_READY_FILE"])
    server.serve_forever()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Stand-ins that Python imports in place of the services."""
    for module in MODULES.values():
        package = tmp_path / "stand-ins" / module
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(textwrap.dedent(STAND_IN))
    return {"PYTHONPATH": str(tmp_path / "stand-ins"), "STAND_IN_FAILS": str(tmp_path / "fail")}


@pytest.fixture
def stack(tmp_path: Path, environment: dict[str, str]) -> Iterator[Stack]:
    stack = Stack(home=tmp_path / "home", coordinators=1, executors=1, environment=environment)
    yield stack
    stack.down()


def test_a_life(stack: Stack, tmp_path: Path, environment: dict[str, str]) -> None:
    stack.up()
    names = {"postgres", "redis", "s3", "coordinator-1", "executor-1", "log-archiver-1", "admin-web-1"}
    first = stack.processes()
    assert set(first) == names
    assert all(row.green for row in stack.status()) and {row.name for row in stack.status()} == names

    for environment_of in ("data/executor-1/environment", "run/environment"):
        environment_text = (tmp_path / "home" / environment_of).read_text()
        assert "DATABASE_URL" not in environment_text and "REDIS_URL" not in environment_text, environment_of
    assert not (tmp_path / "home/data/admin-web-1").exists(), "the site has no state"
    assert_no_secret_in_process_list(stack)
    assert_services_have_roles_of_their_own(stack)

    stack.up()
    assert stack.processes() == first, "a second up is harmless"

    stack.kill("coordinator-1", signal.SIGKILL)
    assert wait_until(lambda: "coordinator-1" not in stack.processes(), 60)
    assert [row.name for row in stack.status() if not row.green] == ["coordinator-1"]
    stack.up()
    again = stack.processes()
    assert {name for name in names if again[name].pid != first[name].pid} == {"coordinator-1"}
    assert again["coordinator-1"].address == first["coordinator-1"].address

    stack.kill("redis", signal.SIGKILL)
    assert wait_until(lambda: "redis" not in stack.processes(), 60)
    assert stack.start("redis").address == first["redis"].address

    Stack(home=tmp_path / "home", coordinators=1, executors=2, environment=environment).up()
    more = stack.processes()
    assert more["executor-1"].pid != first["executor-1"].pid and "executor-2" in more
    assert more["postgres"] == first["postgres"]

    sockets = [Path(path) for path in more["s3"].leftovers]
    family = [*more.values(), *processes.descendants(list(more.values()))]
    assert len(stack.down()) == len(names) + 1
    assert not [record for record in family if processes.alive(record)], "no process is left"
    assert sockets and not [path for path in sockets if path.exists()]
    assert stack.processes() == {}
    assert stack.down() == []


@pytest.mark.parametrize("supervise", [None, pytest.param(Backoff(), marks=pytest.mark.long)])
def test_a_service_that_does_not_come_up(
    supervise: Backoff | None, tmp_path: Path, environment: dict[str, str]
) -> None:
    stack = Stack(home=tmp_path / "home", coordinators=1, executors=1, environment=environment, supervise=supervise)
    (tmp_path / "fail").touch()
    with pytest.raises(ProcessFailed, match=r"coordinator-1 ended while starting\n  \| no such thing as coordinator-1"):
        stack.up()
    assert StateFile(path=stack.home.state_file).all() == [], "nothing runs, and no supervisor"


@pytest.fixture
def supervised(
    tmp_path: Path, environment: dict[str, str], pg_empty_url: str, redis_url: str
) -> Iterator[Callable[..., Stack]]:
    """Makes the stack with other counts of processes; a second restart within a minute does not come within the test."""
    given = {"SCHEDULER_DATABASE_URL": pg_empty_url, "SCHEDULER_REDIS_URL": redis_url}

    def make(**counts: int) -> Stack:
        return Stack(
            home=tmp_path / "home",
            environment={**environment, **given},
            supervise=Backoff(first_seconds=3600.0, longest_seconds=3600.0),
            **{"coordinators": 1, "executors": 1, **counts},
        )

    yield make
    make().down()


def until(stack: Stack, name: str, text: str) -> health.ProcessStatus:
    """The status of a process, as soon as its health begins with `text`."""
    rows: list[health.ProcessStatus] = []

    def there() -> bool:
        rows[:] = [row for row in stack.status() if row.name == name and row.health.startswith(text)]
        return bool(rows)

    assert wait_until(there, 30), [row for row in stack.status() if row.name == name]
    return rows[0]


def test_restarts_and_waits_are_in_the_status(
    supervised: Callable[..., Stack],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack = supervised()
    stack.up()
    first = stack.processes()
    monkeypatch.setattr(prompt, "_stack", lambda: stack)
    assert prompt.status() == 0
    head, supervisor, s3, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["PROCESS", "ROLE", "ADDRESS", "ADMIN", "PID", "RESTARTS", "HEALTH"]
    assert supervisor.split()[-2:] == ["-", "ok"] and s3.split()[-2:] == ["0", "ok"]

    (tmp_path / "fail").touch()
    stack.kill("executor-1", signal.SIGTERM)
    row = until(stack, "executor-1", "backoff: next start in ")
    assert not row.green and row.pid == 0 and row.restarts == 1 and row.last_exit is not None
    assert " s (exit code 1 after " in row.health
    assert prompt.status() == 1
    last = capsys.readouterr().out.splitlines()
    [title] = [number for number, line in enumerate(last) if line.startswith("ENDED       WHEN")]
    name, _, _, line = re.split(r"\s{2,}", last[title + 1])
    assert (name, line) == ("executor-1", "no such thing as executor-1")

    with pytest.raises(ProcessFailed, match="executor-1 ended while starting"):
        stack.up()
    assert until(stack, "executor-1", "backoff").restarts == 2, "it stays under supervision"
    (tmp_path / "fail").unlink()
    stack.up()
    assert until(stack, "executor-1", "ok").restarts == 3
    again = stack.processes()
    assert {name for name in first if again[name] != first[name]} == {"executor-1"}
    assert again["executor-1"].address == first["executor-1"].address

    supervised(executors=2).up()
    more = stack.processes()
    assert "executor-2" in more and more["s3"] == first["s3"]
    assert {row.restarts for row in stack.status()} == {0, None}, "other settings are no restart by the supervisor"

    stack.kill(SUPERVISOR, signal.SIGKILL)
    until(stack, SUPERVISOR, "not running, nothing is restarted: make up")
    supervised(executors=2).up()
    assert stack.processes() == more and all(row.green for row in stack.status())
    family = [*more.values(), *processes.descendants(list(more.values()))]
    assert stack.down()[0] == "supervisor stopped"
    assert not [record for record in family if processes.alive(record)]


def test_a_given_url_takes_the_place_of_a_server(
    tmp_path: Path, environment: dict[str, str], pg_empty_url: str, redis_url: str
) -> None:
    given = {"SCHEDULER_DATABASE_URL": pg_empty_url, "SCHEDULER_REDIS_URL": redis_url}
    stack = Stack(home=tmp_path / "home", coordinators=1, executors=1, environment={**environment, **given})
    try:
        stack.up()
        url = stack.endpoints()
        assert (url.coordinator_database_url, url.log_archiver_database_url) == (pg_empty_url, pg_empty_url)
        own = {"TOBAN_LOG_ARCHIVER_DATABASE_URL": "postgresql://toban_log_archiver:x@h/d"}
        url = Stack(home=tmp_path / "home", environment={**environment, **given, **own}).endpoints()
        assert (url.coordinator_database_url, url.log_archiver_database_url) == (pg_empty_url, *own.values())
        assert set(stack.processes()) == {"s3", "coordinator-1", "executor-1", "log-archiver-1", "admin-web-1"}
        with pytest.raises(StackError, match="is not running"):
            stack.kill("redis", signal.SIGKILL)
    finally:
        stack.down()


def assert_no_secret_in_process_list(stack: Stack) -> None:
    endpoints = stack.endpoints()
    urls = (endpoints.database_url, endpoints.coordinator_database_url, endpoints.log_archiver_database_url)
    secrets = [url.split(":")[2].split("@")[0] for url in (*urls, endpoints.redis_url)]
    assert len(set(secrets)) == len(secrets)
    secrets += [endpoints.s3_access_key, endpoints.s3_secret_key]
    for record in stack.processes().values():
        line = Path(f"/proc/{record.pid}/cmdline").read_text() + Path(f"/proc/{record.pid}/environ").read_text()
        assert not [secret for secret in secrets if secret in line]


def assert_services_have_roles_of_their_own(stack: Stack) -> None:
    for service, role in (("coordinator", "toban_coordinator"), ("log-archiver", "toban_log_archiver")):
        file = stack.home.secrets / f"{service}-database_url"
        assert file.stat().st_mode & 0o777 == 0o600
        with psycopg.connect(file.read_text()) as connection:
            attributes = "rolsuper OR rolcreaterole OR rolcreatedb OR pg_has_role(oid, 'toban_owner', 'MEMBER')"
            found = connection.execute(f"SELECT rolname, {attributes} FROM pg_roles WHERE rolname = session_user")
            assert found.fetchall() == [(role, False)]
