"""admin-web as a process: start, health, configuration errors, orderly stop, and modules that it never loads."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from toban_admin_web.config import AdminWebConfig
from toban_domain.version import VERSION
from toban_runtime.clock import SystemClock
from toban_stack.errors import StackError
from toban_stack.ports import free_port
from toban_stack.wait import wait_until
from toban_testing.admin_port import HEADERS, token_file

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tls: Path, tmp_path: Path, cluster: Any) -> Iterator[Start]:
    """Starts a process with further SCHEDULER_* variables; killed afterwards."""
    started: list[subprocess.Popen[str]] = []

    def begin(**variables: str) -> subprocess.Popen[str]:
        values = {
            "TLS_DIR": str(tls / "admin-web"),
            "COORDINATORS": cluster.coordinator,
            "LOG_ARCHIVERS": cluster.archiver,
            "HTTP_PORT": "0",
            "READY_FILE": str(tmp_path / "ready"),
            "ADMIN_TOKEN_FILE": str(token_file(tmp_path)),
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")}
        environment |= {f"SCHEDULER_{name}": value for name, value in (values | variables).items()}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "toban_admin_web"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str], tmp_path: Path) -> dict[str, int]:
    """The ports, once it serves."""
    assert wait_until(lambda: (tmp_path / "ready").exists() or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()[0]
    ports = dict(json.loads((tmp_path / "ready").read_text()))
    assert ports["pid"] == process.pid
    return ports


def signed_in(port: int, path: str) -> urllib.request.Request:
    """A request with the session that the cluster knows, and with the token of the admin port."""
    return urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"Cookie": f"toban-session-{port}={'5e' * 32}"} | HEADERS
    )


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(signed_in(port, path), timeout=60) as answer:
        return str(answer.read().decode())


def test_start_serve_and_stop(start: Start, tmp_path: Path, cluster: Any) -> None:
    process = start()
    ports = ready(process, tmp_path)
    assert "Toban" in get(ports["http_port"], "/")
    admin = ports["admin_port"]
    assert get(admin, "/livez") == "ok\n" and get(admin, "/readyz") == "ok\n"
    assert wait_until(lambda: "coordinator" in json.loads(get(admin, "/healthz"))["checks"], 60)
    document = json.loads(get(admin, "/healthz"))
    assert document["status"] == "ok" and document["checks"]["coordinator"]["value"] == "1 of 1 serve"
    assert f'toban_build_info{{service="admin-web",version="{VERSION}"}} 1.0' in get(admin, "/metrics")
    assert 'toban_site_upstreams_serving{service="log-archiver"} 1.0' in get(admin, "/metrics")

    stream = urllib.request.urlopen(signed_in(ports["http_port"], "/runs/1/log/stream"), timeout=30)
    assert any(b"line 1" in raw for raw in stream)
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0, "a live log does not delay the stop"
    stream.close()


def test_the_parent_restarts_the_worker(start: Start, tmp_path: Path) -> None:
    process = start()
    port = ready(process, tmp_path)["http_port"]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    [worker] = children.read_text().split()
    os.kill(int(worker), signal.SIGKILL)

    def again() -> bool:
        try:
            return children.read_text().split() != [worker] and "Toban" in get(port, "/")
        except OSError:
            return False

    assert wait_until(again, 30)


def test_workers_end_with_a_killed_parent_and_a_restart_succeeds_at_once(start: Start, tmp_path: Path) -> None:
    first = two_free_ports()
    process = start(HTTP_WORKERS="2", ADMIN_PORT=str(first))
    port = ready(process, tmp_path)["http_port"]
    stream = urllib.request.urlopen(signed_in(port, "/runs/1/log/stream"), timeout=60)
    assert any(b"line 1" in raw for raw in stream)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(workers) == 2
    process.kill()
    process.wait()
    assert wait_until(lambda: not any(Path(f"/proc/{one}/fd").exists() for one in workers), 60)
    (tmp_path / "ready").unlink()
    again = start(HTTP_WORKERS="2", ADMIN_PORT=str(first), HTTP_PORT=str(port))
    assert ready(again, tmp_path)["http_port"] == port and "Toban" in get(port, "/")


def two_free_ports() -> int:
    """The first of two free ports in a row, which no other test of this machine chooses."""
    while True:
        first = free_port()
        with suppress(StackError):
            return free_port(first + 1, first + 2) - 1


def test_each_worker_has_an_admin_port_also_after_its_restart(start: Start, tmp_path: Path) -> None:
    first = two_free_ports()
    process = start(HTTP_WORKERS="2", ADMIN_PORT=str(first))
    port = ready(process, tmp_path)["http_port"]

    def serves(admin: int) -> bool:
        try:
            return get(admin, "/readyz") == "ok\n" and "Toban" in get(port, "/")
        except OSError:
            return False

    assert all(wait_until(lambda admin=admin: serves(admin), 60) for admin in (first, first + 1))  # type: ignore[misc]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    before = children.read_text().split()
    assert len(before) == 2
    os.kill(int(before[0]), signal.SIGKILL)
    assert wait_until(lambda: len(set(children.read_text().split()) - set(before)) == 1, 60)
    assert all(wait_until(lambda admin=admin: serves(admin), 60) for admin in (first, first + 1))  # type: ignore[misc]
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_workers_share_the_webhooks_that_are_sent_at_a_time() -> None:
    config = AdminWebConfig(coordinators=("a:1",), http_workers=3, webhook_senders=8, admin_port=9000)
    assert [config.webhook_senders_of(number) for number in range(3)] == [3, 3, 2]
    assert [config.admin_port_of(number) for number in range(3)] == [9000, 9001, 9002]
    assert AdminWebConfig(coordinators=("a:1",), http_workers=3).admin_port_of(2) == 0


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HTTP_HOST": "0.0.0.0"}, "SCHEDULER_HTTP_HOST: '0.0.0.0' is not loopback"),
        ({"HTTP_PORT": "taken"}, "SCHEDULER_HTTP_PORT: cannot bind"),
        ({"ADMIN_PORT": "taken"}, "SCHEDULER_ADMIN_PORT: cannot bind"),
        ({"TLS_DIR": "/nowhere"}, "/nowhere/tls.crt: cannot be read"),
        ({"COORDINATORS": ""}, "SCHEDULER_COORDINATORS: not set"),
        ({"HTTP_THREADS": "1"}, "SCHEDULER_HTTP_THREADS"),
        ({"HTTP_WORKERS": "0"}, "SCHEDULER_HTTP_WORKERS"),
        ({"HTTP_WORKERS": "4", "ADMIN_PORT": "65535"}, "would have port 65538; choose 65532 or less"),
        ({"WEB_DIR": "/nowhere"}, "SCHEDULER_WEB_DIR: /nowhere has no templates"),
        ({"HTTP_NAME": "x"}, "did you mean SCHEDULER_HTTP_NAMES?"),
    ],
)
def test_a_wrong_configuration_ends_with_one_line(
    start: Start, cluster: Any, variables: dict[str, str], message: str
) -> None:
    taken = cluster.coordinator.rpartition(":")[2]
    process = start(**{name: taken if value == "taken" else value for name, value in variables.items()})
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 78 and message in output and len(output.splitlines()) == 1


def test_an_address_beyond_loopback_needs_permission_and_warns(start: Start, tmp_path: Path) -> None:
    process = start(HTTP_HOST="0.0.0.0", HTTP_ALLOW_REMOTE="true")
    ready(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    assert "people can sign in through a proxy with TLS only" in process.communicate(timeout=30)[0]


def test_it_loads_no_driver_of_a_database() -> None:
    script = "import sys, toban_admin_web.main, toban_admin_web.main.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    modules = set(done.stdout.split())
    loaded = {name.partition(".")[0] for name in modules}
    assert not loaded & {"psycopg", "psycopg_pool", "redis", "boto3", "toban_store", "sqlite3"}
    # The site shares the operator's part of fencing, not what talks to Redis or runs an election.
    fencing = {name for name in modules if name.startswith("toban_fencing.")}
    assert fencing == {"toban_fencing.operator"}


def test_the_parent_never_loads_grpc() -> None:
    script = "import sys, toban_admin_web.main, toban_admin_web.server.gunicorn_app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert "grpc" not in done.stdout.split(), "a process that has loaded gRPC must not fork"


def test_half_sent_requests_delay_other_requests_for_seconds_only(start: Start, tmp_path: Path, at_most: Any) -> None:
    process = start(HTTP_THREADS="4")
    port = ready(process, tmp_path)["http_port"]
    with ExitStack() as opened:
        halves = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(5)]
        for half in halves:
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        clock = SystemClock()
        began = clock.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
            assert answer.status == 200
        assert clock.monotonic() - began < at_most(20)
        halves[0].settimeout(60)
        assert halves[0].recv(1) == b"", "it was closed"
    process.send_signal(signal.SIGTERM)
    assert "Traceback" not in process.communicate(timeout=30)[0]
