"""Executors that lose coordinators, are detached, or are fenced under jobs that continue (docs/fencing.md 3.7)."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import executor_name, leader_name, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.long]
# Longer than a lease of ten seconds and the time to take over from a leader that is stopped.
CUT_OFF_SECONDS = 16.0
SCRIPT = 'while [ ! -e "$END" ]; do echo x >> "$END.ticks"; sleep 0.1; done'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Three coordinators and two executors."""
    with running_stack(tmp_path_factory.mktemp("home"), coordinators=3, slots=4) as made:
        yield made


def started(admin: AdminClient, name: str, end: Path, **spec: Any) -> tuple[pb.Run, Callable[[], int]]:
    """A run that ends when the file is there, and how often it has written so far."""
    step = {"id": "main", "type": "command", "argv": ["sh", "-c", SCRIPT]}
    body = {"steps": [step], "env": {"END": str(end)}, "allow_shell": True, **spec}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body})
    [run_id] = admin.start(name)
    ticks = Path(f"{end}.ticks")

    def written() -> int:
        return ticks.stat().st_size if ticks.exists() else 0

    run = admin.until(
        lambda: r if (r := admin.run(run_id)).state == "RUNNING" and written() else None, seconds=30, of="it runs"
    )
    return run, written


def events(admin: AdminClient, run: int) -> list[str]:
    return [event.type for event in admin.run(run).events]


@contextlib.contextmanager
def stopped(stack: Stack, *names: str) -> Iterator[None]:
    for name in names:
        stack.kill(name, signal.SIGSTOP)
    try:
        yield
    finally:
        for name in names:
            stack.kill(name, signal.SIGCONT)


def test_with_one_of_three_coordinators_an_executor_keeps_its_jobs(
    stack: Stack, admin: AdminClient, tmp_path: Path
) -> None:
    """Those that are stopped hang: their sockets accept, and nothing answers."""
    end = tmp_path / "end"
    run, written = started(admin, "kept", end)
    leader = leader_name(stack, admin)
    others = [name for name in stack.processes() if name.startswith("coordinator") and name != leader]
    with stopped(stack, leader, others[0]):
        threading.Event().wait(CUT_OFF_SECONDS)
        before = written()
        admin.prefer(stack.processes()[others[1]].address)
        admin.until(lambda: written() > before or None, of="it still runs")
        assert "frozen" not in events(admin, run.id)
        end.touch()
        ended = admin.until_ended(run.id)
    assert (ended.state, ended.attempt, ended.lost_count) == ("SUCCEEDED", 1, 0)


@pytest.mark.seed(18)
def test_a_detach_lets_the_run_finish_by_a_confirmation(stack: Stack, admin: AdminClient, tmp_path: Path) -> None:
    end = tmp_path / "end"
    run, _ = started(admin, "detached", end)
    request = pb.DetachExecutorRequest(worker_id=run.worker_id, mode="let_finish", reason="a test")
    node = admin.call(rpc.OperationsStub, "DetachExecutor", request).node_id
    admin.until(lambda: "continuation_confirmed" in events(admin, run.id) or None, of="it is confirmed")
    assert admin.run(run.id).state == "RUNNING"
    end.touch()
    assert admin.until_ended(run.id).state == "SUCCEEDED"
    admin.until(lambda: joined(admin, node, after=run.worker_id), of="its executor has joined again")


def test_a_job_that_continues_outlives_the_fence_of_its_executor(
    stack: Stack, admin: AdminClient, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    run, written = started(admin, "continues", end, on_lease_loss="continue", idempotent=True)
    executor = executor_name(stack, admin, run.worker_id)
    with stopped(stack, executor):
        waiting = admin.until(
            lambda: r if (r := admin.run(run.id)).state == "ORPHANED" else None, seconds=40, of="it is fenced"
        )
        assert f"toban run lost {run.id}" in waiting.waiting and waiting.HasField("orphaned_until")
        before = written()
        admin.until(lambda: written() > before or None, of="it runs without a lease")
    before = written()
    admin.until(lambda: written() > before or None, of="it runs after its executor is back")
    assert admin.run(run.id).state == "ORPHANED"
    end.touch()
    ended = admin.until_ended(run.id)
    assert (ended.state, ended.attempt, ended.lost_count) == ("SUCCEEDED", 1, 0), "by its late report"
    node = run.executor
    admin.until(lambda: joined(admin, node, after=run.worker_id), of="its executor has joined again")


def joined(admin: AdminClient, node: str, *, after: int) -> pb.Executor | None:
    """A newer executor of a node."""
    return next((one for one in admin.cluster().executors if one.node_id == node and one.worker_id > after), None)
