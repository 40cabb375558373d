"""An operator at work on a running stack, by the command line: demote under load, drain over a restart, settings that count at once."""

import itertools
import logging
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_stack.processes import alive
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.admin_port import ask, ask_process, metrics_of
from toban_testing.run_recorder import by_run, interval_schedule, recorder_job
from toban_testing.stack_fixtures import executor_name, sql

pytestmark = pytest.mark.e2e
SCHEDULES = 10
CLOCK = SystemClock()
# Measured times: `pytest --log-cli-level=INFO` shows them.
LOG = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def as_before(admin: AdminClient, toban_here: Callable[..., Any], whole_afterwards: None) -> Iterator[None]:
    """Whatever the test has come to: no schedule of it acts, and every executor takes work."""
    yield
    # Refused where the test has not made it.
    toban_here("job", "disable", "ops-tick")
    for executor in admin.cluster().executors:
        if executor.drained:
            admin.call(rpc.OperationsStub, "UndrainExecutor", pb.UndrainExecutorRequest(worker_id=executor.worker_id))


def metric(stack: Stack, name: str, metric_name: str) -> float | None:
    """A plain metric of a process of the stack."""
    return next(
        (float(line.split()[-1]) for line in metrics_of(stack, name) if line.startswith(f"{metric_name} ")), None
    )


def test_every_process_tells_its_health_and_metrics_for_the_token_alone(stack: Stack) -> None:
    """As a job on the same machine would ask, that has no token."""
    assert stack.home.admin_token().stat().st_mode & 0o777 == 0o600
    served = {name: record.admin for name, record in stack.processes().items() if record.admin}
    assert {name.rpartition("-")[0] for name in served} >= {"coordinator", "executor", "log-archiver"}
    for name, address in served.items():
        for path in ("/healthz", "/metrics"):
            status, text = ask(address, path, token="0" * 48)
            assert (status, text.count("\n")) == (401, 1) and "SCHEDULER_ADMIN_TOKEN_FILE" in text
        assert ask(address, "/livez", token="")[1] == ask(address, "/readyz", token="")[1] == "ok\n"
        assert '"checks"' in ask_process(stack, name, "/healthz")
        assert any(line.startswith("toban_build_info{") for line in metrics_of(stack, name))


@pytest.mark.long
def test_a_demotion_under_load_loses_nothing(
    stack: Stack,
    admin: AdminClient,
    toban_json: Callable[..., Any],
    tmp_path: Path,
    at_most: Any,
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    tick = recorder_job("ops-tick", record, seconds=0.1, concurrency={"policy": "allow"})
    long = recorder_job("ops-long", record, seconds=60)
    admin.apply(tick, long, *(interval_schedule(f"ops-tick-{n:02}", "ops-tick", seconds=1) for n in range(SCHEDULES)))
    [long_id] = admin.start("ops-long")
    admin.until(lambda: len(by_run(record)) > 3 * SCHEDULES, of="scheduled runs come")
    before, token = admin.cluster(), admin.run(long_id).token
    begun = CLOCK.monotonic()
    answer = toban_json("cluster", "demote", "--yes", "--reason", "a test")
    took = CLOCK.monotonic() - begun
    LOG.info("demote to answer: %.2f s", took)
    assert int(answer["new_epoch"]) > before.epoch
    assert int(answer["leader_worker_id"]) != before.leader_worker_id
    assert took < at_most(8), "far less as a rule; the next leader waits for no beat that stands still"
    error = toban_json("cluster", "demote", "--yes", "--epoch", str(before.epoch), code=75)["error"]
    assert error["code"] == "CONFLICT"
    goal = len(by_run(record)) + 8 * SCHEDULES
    admin.until(lambda: len(by_run(record)) >= goal, seconds=40, of="more runs under the next leader")
    end = sql(stack, "SELECT now() - interval '1 second' AS t")[0]["t"]
    live = "SELECT 1 FROM scheduler.runs_live WHERE job_name = 'ops-tick' AND slot <= %(end)s"
    admin.until(lambda: not sql(stack, live, end=end), seconds=40, of="every due run ended")
    runs = sql(stack, "SELECT * FROM scheduler.job_runs WHERE job_name = 'ops-tick' AND slot <= %(end)s", end=end)
    assert {(run["state"], run["attempt"], run["lost_count"]) for run in runs} == {("SUCCEEDED", 1, 0)}
    for schedule in {run["schedule_id"] for run in runs}:
        slots = sorted(run["slot"] for run in runs if run["schedule_id"] == schedule)
        assert {later - earlier for earlier, later in itertools.pairwise(slots)} == {timedelta(seconds=1)}
    kept = admin.run(long_id)
    assert (kept.state, kept.token, kept.attempt, kept.lost_count) == ("RUNNING", token, 1, 0)
    admin.cancel(long_id)
    [entry] = toban_json("audit", "list", "--action", "demote", "--limit", "1")
    assert (entry["action"], entry["reason"], entry["actor"]) == ("demote", "a test", "certificate admin-cli")


@pytest.mark.seed(74)
def test_a_drain_outlives_a_restart_and_its_runs_finish(
    stack: Stack, admin: AdminClient, toban_json: Callable[..., Any], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    gate = tmp_path / "gate"
    argv = ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done"]
    step = {"id": "s", "type": "command", "argv": argv}
    spec = {"steps": [step], "allow_shell": True, "concurrency": {"policy": "allow"}}
    admin.apply(
        {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "ops-held"}, "spec": spec},
        recorder_job("ops-quick", record, seconds=0.05, concurrency={"policy": "allow"}),
    )
    held = admin.start("ops-held", count=4)
    admin.until(lambda: all(admin.run(one).state == "RUNNING" for one in held), of="they run")
    drained = admin.run(held[0]).worker_id
    name = executor_name(stack, admin, drained)
    there = [one for one in held if admin.run(one).worker_id == drained]
    mine = f"SELECT count(*) = {len(there)} AS alone FROM scheduler.runs_live WHERE assigned_worker_id = {drained}"
    admin.until(lambda: sql(stack, mine)[0]["alone"], of="the runs of other tests have ended")
    answer = toban_json("executor", "drain", name, "--reason", "a new disk")
    assert (answer["state"], answer["drained"], answer["drain_reason"]) == ("draining", True, "a new disk")
    assert int(answer["running"]) == len(there)
    quick = admin.start("ops-quick", count=10)
    ended = [admin.until_ended(one) for one in quick]
    assert {one.state for one in ended} == {"SUCCEEDED"}
    assert drained not in {one.worker_id for one in ended}, "new work goes elsewhere"
    error = toban_json("executor", "drain", name, "--wait", "--timeout", "1", code=75)["error"]
    assert "still has" in error["message"]
    gate.touch()
    idle = toban_json("executor", "drain", name, "--wait", "--timeout", "30")
    assert int(idle["running"]) == 0
    assert {(one.state, one.attempt) for one in map(admin.until_ended, held)} == {("SUCCEEDED", 1)}
    stack.kill(name, signal.SIGTERM)
    admin.until(lambda: name not in running_names(stack), of="the executor has stopped")
    stack.start(name)
    again = admin.until(lambda: by_node(admin, name, other_than=drained), of="it is back")
    assert (again.state, again.drained) == ("draining", True)
    others = [admin.until_ended(one).worker_id for one in admin.start("ops-quick", count=5)]
    assert again.worker_id not in others
    assert toban_json("executor", "undrain", name)["drained"] is False
    admin.until(lambda: by_node(admin, name).state == "on", of="it takes work again")
    admin.until(
        lambda: again.worker_id in {admin.until_ended(one).worker_id for one in admin.start("ops-quick", count=8)},
        of="it gets work again",
    )
    error = toban_json("executor", "drain", f"{name}x", code=66)["error"]
    assert f"did you mean {name}" in error["message"]


@pytest.mark.seed(9)
def test_a_setting_counts_everywhere_within_two_seconds(
    stack: Stack, admin: AdminClient, toban_json: Callable[..., Any]
) -> None:
    error = toban_json("settings", "set", "heartbeat_interval_seconds", "30", code=65)["error"]
    assert "heartbeat_ttl_seconds must be at least" in error["message"]
    try:
        begun = CLOCK.monotonic()
        answer = toban_json("settings", "set", "heartbeat_interval_seconds", "0.25", "--reason", "faster")
        version = int(answer["version"])
        parts = {name: "toban_settings_version" for name in stack.processes() if name.startswith("coordinator")}
        parts |= {name: "toban_executor_settings_version" for name in stack.processes() if name.startswith("executor")}
        took = {}
        for name, what in parts.items():
            admin.until(lambda n=name, w=what: metric(stack, n, w) == version, of=f"{name} has heard")
            took[name] = CLOCK.monotonic() - begun
        LOG.info("setting to the last process: %.2f s", max(took.values()))
        found = toban_json("settings", "get", "heartbeat_interval_seconds")
        assert (found["value"], found["updated_by"]) == (0.25, "certificate admin-cli")
        assert toban_json("audit", "list", "--limit", "1")[0]["before"] == {"value": 1.0, "version": 0}
        beats = "SELECT grant_seq FROM scheduler.executors WHERE state <> 'off' ORDER BY worker_id"
        before = [row["grant_seq"] for row in sql(stack, beats)]
        admin.until(
            lambda: min(b["grant_seq"] - a for a, b in zip(before, sql(stack, beats), strict=True)) >= 8,
            of="heartbeats at the new pace",
        )
    finally:
        toban_json("settings", "set", "heartbeat_interval_seconds", "default")


@pytest.mark.seed(113)
def test_a_detached_executor_joins_again_under_a_new_number(
    stack: Stack, admin: AdminClient, toban_json: Callable[..., Any], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.mkdir()
    admin.apply(recorder_job("ops-moved", record, seconds=600))
    [run_id] = admin.start("ops-moved")
    admin.until(lambda: by_run(record), of="it runs")
    run = admin.until(lambda: r if (r := admin.run(run_id)).state == "RUNNING" else None, of="it is known")
    # The attempt that goes on elsewhere.
    (record / "seconds").write_text("0")
    name = executor_name(stack, admin, run.worker_id)
    toban_json("executor", "detach", str(run.worker_id), "--stop", "--reason", "it hangs")
    new = admin.until(lambda: by_node(admin, name, other_than=run.worker_id), of="it has joined again")
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
