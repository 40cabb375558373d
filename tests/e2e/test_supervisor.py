"""What `make up` restarts: an executor with a running job, the leader, the servers; and a service that cannot start."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack import processes
from toban_stack import stack as stack_module
from toban_stack.health import ProcessStatus
from toban_stack.stack import GUARD, Stack
from toban_stack.supervisor.client import SUPERVISOR
from toban_stack.supervisor.policy import Backoff
from toban_stack.wait import wait_until
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, running_stack, sql

pytestmark = [pytest.mark.e2e, pytest.mark.long]
BACKOFF = Backoff(first_seconds=1.0, longest_seconds=3600.0)
SECONDS = 60.0
# Ends at once when the file exists; else it runs until it is killed.
SCRIPT = 'echo "$TOBAN_RUN_ID" >> "$FOLDER/starts"; test -e "$FOLDER/enough" || exec sleep 300'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("supervised") / "home", executors=1, supervise=BACKOFF) as stack:
        yield stack


def status(stack: Stack, name: str) -> ProcessStatus:
    [row] = [row for row in stack.status() if row.name == name]
    return row


def kill(stack: Stack, name: str, signum: int = signal.SIGKILL) -> None:
    """Returns when the process has ended."""
    record = stack.processes()[name]
    stack.kill(name, signum)
    assert wait_until(lambda: not processes.alive(record), SECONDS)


def until_restarted(stack: Stack, name: str, restarts: int = 1) -> ProcessStatus:
    """Its status when it is healthy after at least so many restarts."""
    rows: list[ProcessStatus] = []

    def there() -> bool:
        rows.append(status(stack, name))
        return rows[-1].green and (rows[-1].restarts or 0) >= restarts

    assert wait_until(there, SECONDS), rows[-1]
    return rows[-1]


def job(folder: Path) -> dict[str, object]:
    spec = {"steps": [{"argv": ["sh", "-c", SCRIPT]}], "env": {"FOLDER": str(folder)}, "allow_shell": True}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "long"}, "spec": spec}


def test_a_killed_executor_comes_back_and_its_successor_attests_its_end(
    stack: Stack, admin: AdminClient, tmp_path: Path
) -> None:
    lease_outlasts_the_test(stack, admin)
    admin.apply(job(tmp_path))
    [run_id] = admin.start("long")
    admin.until(lambda: (tmp_path / "starts").exists(), seconds=SECONDS, of="the job runs")
    (tmp_path / "enough").touch()
    columns = "SELECT incarnation::text, instance, node_id, pid, state::text, off_reason FROM scheduler.executors"
    before = {one["incarnation"]: one for one in sql(stack, columns)}
    [held] = [one for one in before.values() if one["state"] == "on"]

    kill(stack, "executor-1")
    run = admin.until_ended(run_id, seconds=SECONDS)
    assert run.state == "SUCCEEDED" and run.lost_count == 1
    assert (tmp_path / "starts").read_text().split() == [str(run_id)] * 2
    row = until_restarted(stack, "executor-1")
    assert row.last_exit is not None and row.last_exit.signal == signal.SIGKILL

    found = {one["incarnation"]: one for one in sql(stack, columns)}
    old = found[held["incarnation"]]
    [new] = [one for incarnation, one in found.items() if incarnation not in before]
    assert old["state"] == "off" and old["off_reason"].startswith("attested: "), old
    assert new["state"] == "on" and new["pid"] == row.pid != held["pid"]
    assert (new["instance"], new["node_id"]) == (held["instance"], "executor-1"), "the same state directory and name"


def lease_outlasts_the_test(stack: Stack, admin: AdminClient) -> None:
    """Only an attestation ends it, however slow this machine is. It counts when an executor registers, so it does that again."""
    sql(stack, "INSERT INTO scheduler.settings (name, value) VALUES ('executor_lease_seconds', '600')")
    [before] = [one.worker_id for one in admin.cluster().executors if one.state == "on"]
    admin.call(
        rpc.OperationsStub, "DetachExecutor", pb.DetachExecutorRequest(worker_id=before, mode="stop", reason="test")
    )

    def again() -> bool:
        return [(one.worker_id > before, one.lease_ms) for one in admin.cluster().executors if one.state == "on"] == [
            (True, 600_000)
        ]

    admin.until(again, seconds=SECONDS, of="the executor has the long lease")


def test_a_killed_leader_comes_back_as_a_coordinator(stack: Stack, admin: AdminClient) -> None:
    name, dead = leader_name(stack, admin), admin.cluster().leader_worker_id
    kill(stack, name)
    until_restarted(stack, name)

    def all_there() -> bool:
        cluster = admin.cluster()
        live = {one.address for one in cluster.coordinators if one.worker_id != dead}
        return live == set(stack.coordinators) and cluster.leader_worker_id not in (0, dead)

    admin.until(all_there, seconds=SECONDS, of="two coordinators, one of them leads")


def test_an_executor_that_ends_while_the_servers_are_down_comes_back(stack: Stack, admin: AdminClient) -> None:
    """Whatever the services do meanwhile, the supervisor continues to try."""
    [before] = [one.incarnation for one in admin.cluster().executors if one.state == "on"]
    restarts = status(stack, "executor-1").restarts or 0
    kill(stack, "postgres", signal.SIGQUIT)
    kill(stack, "redis")
    kill(stack, "executor-1")
    until_restarted(stack, "postgres")
    until_restarted(stack, "redis")
    until_restarted(stack, "executor-1", restarts + 1)

    def registered() -> bool:
        return [one.incarnation != before for one in admin.cluster().executors if one.state == "on"] == [True]

    admin.until(registered, seconds=SECONDS, of="the executor is registered")


def test_a_service_that_cannot_start_shows_why_until_it_is_repaired(stack: Stack) -> None:
    certificate = stack.home.tls / "log-archiver" / "tls.crt"
    good = certificate.read_bytes()
    certificate.write_bytes(b"no certificate")
    try:
        kill(stack, "log-archiver-1")
        assert wait_until(lambda: status(stack, "log-archiver-1").health.startswith("backoff: next start in"), SECONDS)
        row = status(stack, "log-archiver-1")
        assert not row.green and row.restarts is not None and row.restarts >= 1 and row.last_exit is not None
        assert row.last_exit.code and str(certificate.parent) in row.last_exit.detail
    finally:
        certificate.write_bytes(good)
    stack.up()
    assert not status(stack, "log-archiver-1").health.startswith("backoff"), "`make up` does not wait for the backoff"
    assert wait_until(lambda: status(stack, "log-archiver-1").green, SECONDS)


def test_nothing_is_left_of_a_stack_whose_supervisor_was_killed(
    stack: Stack, admin: AdminClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.apply(job(tmp_path))
    admin.start("long")
    admin.until(lambda: (tmp_path / "starts").exists(), seconds=SECONDS, of="the job runs")
    before = stack.processes()
    stack.kill(SUPERVISOR, signal.SIGKILL)
    assert wait_until(lambda: not status(stack, SUPERVISOR).green, SECONDS)
    assert stack.processes() == before, "the services live on"
    stack.up()
    assert stack.processes() == before and status(stack, SUPERVISOR).green, "the new supervisor adopts them"

    # Guards that cannot end by themselves, and their job, whose executor is dead.
    family = processes.descendants(list(before.values()))
    guards = processes.called_with(GUARD, str(stack.home.data / "executor-1"))
    assert guards and all(processes.send(guard, signal.SIGSTOP) for guard in guards)
    stack.kill(SUPERVISOR, signal.SIGKILL)
    kill(stack, "executor-1")
    monkeypatch.setattr(stack_module, "GUARD_SECONDS", 0.1)
    assert "guards of executors that had died: " in "".join(stack.down())
    assert not [one for one in [*before.values(), *family] if processes.alive(one)]
