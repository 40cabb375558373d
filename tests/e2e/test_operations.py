"""An operator at work on a running stack, by the command line: demote under load, drain over a restart, settings that count at once."""

import itertools
import json
import logging
import signal
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_cli.main import run as toban_main
from toban_runtime.clock import SystemClock
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.processes import alive
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.run_recorder import by_run, interval_schedule, recorder_job
from toban_testing.stack_fixtures import executor_name, running_stack, sql

pytestmark = pytest.mark.e2e
SCHEDULES = 10
CLOCK = SystemClock()
# Measured times: `pytest --log-cli-level=INFO` shows them.
LOG = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack for all of these."""
    with running_stack(tmp_path_factory.mktemp("operations") / "home") as stack:
        yield stack


@pytest.fixture
def toban(stack: Stack, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`toban("cluster", "status")` runs the command and gives its answer as data; `ok=False` gives (exit code, error)."""
    monkeypatch.setenv("SCHEDULER_COORDINATORS", ",".join(stack.coordinators))
    monkeypatch.setenv("SCHEDULER_TLS_DIR", str(stack.home.tls))
    monkeypatch.setenv("SCHEDULER_TRUST_DOMAIN", TRUST_DOMAIN)

    def call(*words: str, ok: bool = True) -> Any:
        capfd.readouterr()
        code = toban_main([*words, "-o", "json"])
        out, err = capfd.readouterr()
        assert (code == 0) is ok, (code, out, err)
        return json.loads(out) if ok else (code, json.loads(err.splitlines()[-1])["error"])

    return call


def metric(stack: Stack, name: str, metric_name: str) -> float | None:
    """A plain metric of a process of the stack."""
    url = f"http://{stack.processes()[name].admin}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{metric_name} ")), None)


def test_a_demotion_under_load_loses_nothing(
    stack: Stack,
    admin: AdminClient,
    toban: Callable[..., Any],
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    tick = recorder_job("tick", record, seconds=0.1, concurrency={"policy": "allow"})
    long = recorder_job("long", record, seconds=60)
    admin.apply(tick, long, *(interval_schedule(f"tick-{n:02}", "tick", seconds=1) for n in range(SCHEDULES)))
    [long_id] = admin.start("long")
    admin.until(lambda: len(by_run(record)) > 3 * SCHEDULES, seconds=20, of="scheduled runs come")
    before, token = admin.cluster(), admin.run(long_id).token
    begun = CLOCK.monotonic()
    answer = toban("cluster", "demote", "--yes", "--reason", "a test")
    took = CLOCK.monotonic() - begun
    LOG.info("demote to answer: %.2f s", took)
    assert int(answer["new_epoch"]) > before.epoch
    assert int(answer["leader_worker_id"]) != before.leader_worker_id
    assert took < 8, "far less as a rule; the next leader waits for no beat that stands still"
    code, error = toban("cluster", "demote", "--yes", "--epoch", str(before.epoch), ok=False)
    assert (code, error["code"]) == (75, "CONFLICT")
    goal = len(by_run(record)) + 8 * SCHEDULES
    admin.until(lambda: len(by_run(record)) >= goal, seconds=40, of="more runs under the next leader")
    sql(stack, "UPDATE scheduler.schedules SET enabled = false")
    end = sql(stack, "SELECT now() - interval '1 second' AS t")[0]["t"]
    live = "SELECT 1 FROM scheduler.runs_live WHERE job_name = 'tick' AND slot <= now()"
    admin.until(lambda: not sql(stack, live), seconds=40, of="every due run ended")
    runs = sql(stack, "SELECT * FROM scheduler.job_runs WHERE job_name = 'tick' AND slot <= %(end)s", end=end)
    assert {(run["state"], run["attempt"], run["lost_count"]) for run in runs} == {("SUCCEEDED", 1, 0)}
    for schedule in {run["schedule_id"] for run in runs}:
        slots = sorted(run["slot"] for run in runs if run["schedule_id"] == schedule)
        assert {later - earlier for earlier, later in itertools.pairwise(slots)} == {timedelta(seconds=1)}
    kept = admin.run(long_id)
    assert (kept.state, kept.token, kept.attempt, kept.lost_count) == ("RUNNING", token, 1, 0)
    admin.cancel(long_id)
    [entry] = toban("audit", "list", "--action", "demote", "--limit", "1")
    assert (entry["action"], entry["reason"], entry["actor"]) == ("demote", "a test", "certificate admin-cli")


@pytest.mark.seed(74)
def test_a_drain_outlives_a_restart_and_its_runs_finish(
    stack: Stack, admin: AdminClient, toban: Callable[..., Any], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    gate = tmp_path / "gate"
    argv = ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done"]
    step = {"id": "s", "type": "command", "argv": argv}
    spec = {"steps": [step], "allow_shell": True, "concurrency": {"policy": "allow"}}
    admin.apply(
        {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "held"}, "spec": spec},
        recorder_job("quick", record, seconds=0.05, concurrency={"policy": "allow"}),
    )
    held = admin.start("held", count=4)
    admin.until(lambda: all(admin.run(one).state == "RUNNING" for one in held), seconds=20, of="they run")
    drained = admin.run(held[0]).worker_id
    name = executor_name(stack, admin, drained)
    there = [one for one in held if admin.run(one).worker_id == drained]
    answer = toban("executor", "drain", name, "--reason", "a new disk")
    assert (answer["state"], answer["drained"], answer["drain_reason"]) == ("draining", True, "a new disk")
    assert int(answer["running"]) == len(there)
    quick = admin.start("quick", count=10)
    ended = [admin.until_ended(one) for one in quick]
    assert {one.state for one in ended} == {"SUCCEEDED"}
    assert drained not in {one.worker_id for one in ended}, "new work goes elsewhere"
    code, error = toban("executor", "drain", name, "--wait", "--timeout", "1", ok=False)
    assert (code, "still has" in error["message"]) == (75, True)
    gate.touch()
    idle = toban("executor", "drain", name, "--wait", "--timeout", "30")
    assert int(idle["running"]) == 0
    assert {(one.state, one.attempt) for one in map(admin.until_ended, held)} == {("SUCCEEDED", 1)}
    stack.kill(name, signal.SIGTERM)
    admin.until(lambda: name not in running_names(stack), seconds=30, of="the executor has stopped")
    stack.start(name)
    again = admin.until(lambda: by_node(admin, name, other_than=drained), seconds=30, of="it is back")
    assert (again.state, again.drained) == ("draining", True)
    others = [admin.until_ended(one).worker_id for one in admin.start("quick", count=5)]
    assert again.worker_id not in others
    assert toban("executor", "undrain", name)["drained"] is False
    admin.until(lambda: by_node(admin, name).state == "on", seconds=10, of="it takes work again")
    admin.until(
        lambda: again.worker_id in {admin.until_ended(one).worker_id for one in admin.start("quick", count=8)},
        seconds=20,
        of="it gets work again",
    )
    code, error = toban("executor", "drain", f"{name}x", ok=False)
    assert (code, f"did you mean {name}" in error["message"]) == (66, True)


@pytest.mark.seed(9)
def test_a_setting_counts_everywhere_within_two_seconds(
    stack: Stack, admin: AdminClient, toban: Callable[..., Any]
) -> None:
    code, error = toban("settings", "set", "heartbeat_interval_seconds", "30", ok=False)
    assert (code, "heartbeat_ttl_seconds must be at least" in error["message"]) == (65, True)
    begun = CLOCK.monotonic()
    answer = toban("settings", "set", "heartbeat_interval_seconds", "0.25", "--reason", "faster")
    version = int(answer["version"])
    parts = {name: "toban_settings_version" for name in stack.processes() if name.startswith("coordinator")}
    parts |= {name: "toban_executor_settings_version" for name in stack.processes() if name.startswith("executor")}
    took = {}
    for name, what in parts.items():
        admin.until(lambda n=name, w=what: metric(stack, n, w) == version, seconds=20, of=f"{name} has heard")
        took[name] = CLOCK.monotonic() - begun
    LOG.info("setting to the last process: %.2f s", max(took.values()))
    found = toban("settings", "get", "heartbeat_interval_seconds")
    assert (found["value"], found["updated_by"]) == (0.25, "certificate admin-cli")
    assert toban("audit", "list", "--limit", "1")[0]["before"] == {"value": 1.0, "version": 0}
    beats = "SELECT grant_seq FROM scheduler.executors WHERE state <> 'off' ORDER BY worker_id"
    before = [row["grant_seq"] for row in sql(stack, beats)]
    admin.until(
        lambda: min(b["grant_seq"] - a for a, b in zip(before, sql(stack, beats), strict=True)) >= 8,
        seconds=20,
        of="heartbeats at the new pace",
    )
    toban("settings", "set", "heartbeat_interval_seconds", "default")


@pytest.mark.seed(113)
def test_a_detached_executor_joins_again_under_a_new_number(
    stack: Stack, admin: AdminClient, toban: Callable[..., Any], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    admin.apply(recorder_job("moved", record, seconds=3))
    [run_id] = admin.start("moved")
    run = admin.until(lambda: r if (r := admin.run(run_id)).state == "RUNNING" else None, seconds=20, of="it runs")
    name = executor_name(stack, admin, run.worker_id)
    toban("executor", "detach", str(run.worker_id), "--stop", "--reason", "it hangs")
    new = admin.until(lambda: by_node(admin, name, other_than=run.worker_id), seconds=30, of="it has joined again")
    assert new.worker_id > run.worker_id
    ended = admin.until_ended(run_id, seconds=40)
    assert (ended.state, ended.lost_count, ended.attempt) == ("SUCCEEDED", 1, 1)
    assert [mark.what for mark in by_run(record)[run_id]] == ["start", "start", "end"]


def running_names(stack: Stack) -> set[str]:
    return {name for name, record in stack.processes().items() if alive(record)}


def by_node(admin: AdminClient, node: str, *, other_than: int = 0) -> Any:
    """The newest executor of a node that is there, if it has another number than `other_than`."""
    found = [one for one in admin.cluster().executors if one.node_id == node and one.worker_id != other_than]
    return max(found, key=lambda one: one.worker_id, default=None)
