"""The launcher over real servers and small stand-ins for the services: up, status, kill, start, down."""

import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_stack import processes
from toban_stack.errors import ProcessFailed, StackError
from toban_stack.services import MODULES
from toban_stack.stack import Stack
from toban_stack.wait import wait_until

STAND_IN = """
    import http.server, json, os, subprocess, sys
    if os.path.exists(os.environ["STAND_IN_FAILS"]):
        sys.exit("no such thing as " + os.environ["SCHEDULER_NODE_ID"])
    subprocess.Popen(["sleep", "300"], start_new_session=True)  # a job that outlives its executor
    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
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

    stack.up()
    assert stack.processes() == first, "a second up is harmless"

    stack.kill("coordinator-1", signal.SIGKILL)
    assert wait_until(lambda: "coordinator-1" not in stack.processes(), 5)
    assert [row.name for row in stack.status() if not row.green] == ["coordinator-1"]
    stack.up()
    again = stack.processes()
    assert {name for name in names if again[name].pid != first[name].pid} == {"coordinator-1"}
    assert again["coordinator-1"].address == first["coordinator-1"].address

    stack.kill("redis", signal.SIGKILL)
    assert wait_until(lambda: "redis" not in stack.processes(), 5)
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


def test_a_service_that_does_not_come_up(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "fail").touch()
    with pytest.raises(ProcessFailed, match=r"coordinator-1 ended while starting\n  \| no such thing as coordinator-1"):
        stack.up()
    assert stack.processes() == {}


def test_a_given_url_takes_the_place_of_a_server(
    tmp_path: Path, environment: dict[str, str], pg_empty_url: str, redis_url: str
) -> None:
    given = {"SCHEDULER_DATABASE_URL": pg_empty_url, "SCHEDULER_REDIS_URL": redis_url}
    stack = Stack(home=tmp_path / "home", coordinators=1, executors=1, environment={**environment, **given})
    try:
        stack.up()
        assert set(stack.processes()) == {"s3", "coordinator-1", "executor-1", "log-archiver-1", "admin-web-1"}
        with pytest.raises(StackError, match="is not running"):
            stack.kill("redis", signal.SIGKILL)
    finally:
        stack.down()


def assert_no_secret_in_process_list(stack: Stack) -> None:
    endpoints = stack.endpoints()
    secrets = [endpoints.database_url.split(":")[2].split("@")[0], endpoints.redis_url.split(":")[2].split("@")[0]]
    secrets += [endpoints.s3_access_key, endpoints.s3_secret_key]
    for record in stack.processes().values():
        line = Path(f"/proc/{record.pid}/cmdline").read_text() + Path(f"/proc/{record.pid}/environ").read_text()
        assert not [secret for secret in secrets if secret in line]
