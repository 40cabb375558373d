"""A whole stack under real Prometheus and Alertmanager: quiet while all is well, and the alert reaches a webhook when nobody leads any more.

The configurations are those of deploy/, with addresses of this stack and seconds in place of minutes.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_stack.ports import free_port
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.admin_port import ask_process
from toban_testing.monitoring import panels, rules
from toban_testing.monitoring.catalogue import declared
from toban_testing.run_recorder import interval_schedule, recorder_job
from toban_testing.stack_fixtures import admin_of, leader_name, running_stack

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
METRICS = declared(ROOT)
# Of each alert here; longer than a fail-over.
LASTING = "5s"
# From the kill to the webhook: what the beat, the scrapes, LASTING, and the first group of alerts take, many times over.
BOUND_SECONDS = 90.0


def binary(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no {names[0]} here: apt-get install prometheus prometheus-alertmanager")
    return found


@dataclass
class Inbox:
    """A webhook's receiver: what Alertmanager has sent, by alert."""

    port: int = 0
    alerts: list[dict[str, Any]] = field(default_factory=list)

    def firing(self, name: str) -> list[dict[str, Any]]:
        return [a for a in tuple(self.alerts) if a["status"] == "firing" and a["labels"]["alertname"] == name]


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    box = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            box.alerts.extend({**alert, "receiver": body["receiver"]} for alert in body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    box.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield box
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    binary("prometheus")
    with running_stack(tmp_path / "home", executors=1, admin_webs=1, slots=4) as stack:
        yield stack


@dataclass(frozen=True)
class Watch:
    """A running Prometheus."""

    url: str

    def ask(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def series(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> list[float]:
        return [float(sample["value"][1]) for sample in self.series(expression)]

    def firing(self, severity: str) -> set[str]:
        found = self.ask("alerts")["alerts"]
        return {
            a["labels"]["alertname"] for a in found if a["state"] == "firing" and a["labels"]["severity"] == severity
        }

    def all_up(self, targets: int) -> bool:
        return [target["health"] for target in self.ask("targets")["activeTargets"]] == ["up"] * targets


@pytest.fixture
def watch(stack: Stack, inbox: Inbox, tmp_path: Path) -> Iterator[Watch]:
    folder = tmp_path / "watch"
    folder.mkdir()
    ports = {"alertmanager": free_port()}
    ports["prometheus"] = free_port(ports["alertmanager"] + 1)
    _write_alertmanager(folder, inbox)
    _write_prometheus(folder, stack, ports["alertmanager"])
    processes = [
        _start(
            folder,
            binary("prometheus-alertmanager", "alertmanager"),
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alertmanager",
            f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
            "--cluster.listen-address=",
        ),
        _start(
            folder,
            binary("prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/prometheus",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
        ),
    ]
    for process, port in zip(processes, ports.values(), strict=True):
        assert wait_until(lambda port=port: _ready(port), 30), f"{process.args} does not start: see {folder}"
    yield Watch(f"http://127.0.0.1:{ports['prometheus']}")
    for process in processes:
        process.terminate()
        process.wait(timeout=20)


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env={"PATH": os.environ["PATH"]})


def _write_alertmanager(folder: Path, inbox: Inbox) -> None:
    config = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text())
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": f"http://127.0.0.1:{inbox.port}/"}]
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))


def _write_prometheus(folder: Path, stack: Stack, alertmanager: int) -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    # All of this stack have one token.
    token_file = str(stack.home.admin_token())
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
    for job in config["scrape_configs"]:
        [discovery] = job.pop("dns_sd_configs")
        [service] = discovery["names"]
        assert set(job["authorization"]) == {"credentials_file"}
        job["authorization"] = {"credentials_file": token_file}
        job["static_configs"] = [{"targets": [r.admin for r in stack.processes().values() if r.role == service]}]
        assert job["job_name"] == f"toban-{service}" and job["static_configs"][0]["targets"]
    for path in (DEPLOY / "prometheus").glob("*.rules.yml"):
        document = yaml.safe_load(path.read_text())
        for rule in (rule for group in document["groups"] for rule in group["rules"] if "alert" in rule):
            rule["for"] = LASTING
        (folder / path.name).write_text(yaml.safe_dump(document))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))


def check_metrics(text: str) -> None:
    """What a process shows is declared, and promtool finds no fault with it."""
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert shown - {metric.name for metric in METRICS} == set()
    done = subprocess.run(
        [binary("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_the_alert_reaches_the_webhook_when_there_is_no_leader(
    stack: Stack, watch: Watch, inbox: Inbox, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    with admin_of(stack) as admin:
        admin.apply(recorder_job("tick", record, seconds=0.01), interval_schedule("tick", "tick", seconds=1))
        leader = leader_name(stack, admin)
        processes = stack.processes()
        watched = {name: item for name, item in processes.items() if item.admin}
        admin.until(lambda: watch.all_up(len(watched)), seconds=30, of="every process is scraped")
        admin.until(lambda: watch.value("max(toban_runs_live)"), seconds=40, of="the leader has counted")
        admin.until(
            lambda: watch.value("sum(toban_run_duration_seconds_count) > 5"), seconds=30, of="runs are measured"
        )
        admin.until(lambda: watch.value("sum(toban_watchdog_looks_total) > 1"), seconds=30, of="the watchdog looks")
    shown = {name: ask_process(stack, name, "/metrics") for name in watched}
    for text in shown.values():
        check_metrics(text)
    assert _told("toban_runs_pending", shown[leader])
    for metric in (metric for metric in METRICS if metric.leader):
        told = {name for name, text in shown.items() if _told(metric.name, text)}
        assert told <= {leader}, metric.name
    assert watch.value("sum(toban_is_leader)") == [1]
    empty = functools.partial(panels.faults, watch.series, _series(shown.values()), rules.recorded(ROOT))
    assert wait_until(lambda: empty() == [], 30), empty()
    assert [rule for group in watch.ask("rules")["groups"] for rule in group["rules"] if rule["health"] != "ok"] == []
    # With `for` as short as here a stack that has just begun to be watched may have had no leader for long enough.
    assert wait_until(lambda: watch.firing("critical") == set(), 30)
    inbox.alerts.clear()

    standby = next(name for name, item in processes.items() if item.role == "coordinator" and name != leader)
    with admin_of(stack, without=leader) as admin:
        stack.kill(leader, signal.SIGKILL)
        address = processes[standby].address
        admin.until(lambda: admin.cluster().leader_address == address, seconds=20, of="the other one leads")
    assert wait_until(lambda: watch.value("sum(toban_is_leader)") == [1], 20)
    assert wait_until(lambda: _told("toban_executors", ask_process(stack, standby, "/metrics")), 20)
    assert wait_until(lambda: bool(inbox.firing("TobanTargetDown")), BOUND_SECONDS)
    assert inbox.firing("TobanTargetDown")[0]["receiver"] == "ticket"
    assert inbox.firing("TobanNoLeader") == []

    stack.kill(standby, signal.SIGKILL)
    assert wait_until(lambda: bool(inbox.firing("TobanNoLeader")), BOUND_SECONDS)
    [alert, *_] = inbox.firing("TobanNoLeader")
    assert alert["receiver"] == "page"
    assert alert["annotations"]["summary"].startswith("No leader.")
    assert (ROOT / alert["annotations"]["runbook"]).is_file()


def _series(texts: Iterable[str]) -> set[str]:
    """The names of all series, as they stand in an expression."""
    return {re.split(r"[{ ]", line)[0] for text in texts for line in text.splitlines() if not line.startswith("#")}


def _told(metric: str, text: str) -> bool:
    return any(line.startswith((f"{metric} ", f"{metric}{{")) for line in text.splitlines())
