"""`toban doctor` on a whole stack: all is well at first, then each planted fault is found; and a crontab becomes jobs that run."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import redis

from toban_cli.doctor.examine import examine
from toban_domain.finding import Finding
from toban_domain.version import VERSION
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import Clock, SystemClock
from toban_runtime.ids import IdSource
from toban_stack import certs
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, executor_name, leader_name, sql, toban_process
from toban_transport.channel import open_sync_channel
from toban_transport.client_calls import unary_sync
from toban_transport.convert import timestamp_to_pb
from toban_transport.tls import TlsFiles

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
Ended = CompletedProcess[str]


@pytest.fixture(scope="module", autouse=True)
def well_at_first(stack: Stack) -> None:
    """The log-archiver learns the settings from a coordinator that may have started after it."""
    until_well(stack)


class AheadClock(SystemClock):
    """This machine's clocks, with the wall clock set wrong."""

    def __init__(self, seconds: float) -> None:
        self._ahead = timedelta(seconds=seconds)

    def wall(self) -> datetime:
        return super().wall() + self._ahead


def diagnose(stack: Stack, clock: Clock | None = None, **environment: str) -> list[Finding]:
    """What is not well."""
    found = examine({"TOBAN_HOME": str(stack.home.root), **environment}, clock or SystemClock())
    unwell = [finding for finding in found if not finding.ok]
    for finding in unwell:
        assert finding.message, finding
        assert finding.remedy, finding
    return unwell


def named(unwell: list[Finding]) -> dict[str, str]:
    """Check → worst status."""
    found: dict[str, str] = {}
    for item in unwell:
        found[item.name] = "error" if "error" in (item.status, found.get(item.name)) else "warning"
    return found


def until_well(stack: Stack) -> None:
    found: list[Finding] = []

    def well() -> bool:
        found[:] = diagnose(stack)
        return not found

    with admin_of(stack) as admin:
        try:
            admin.until(well, of="doctor finds nothing")
        except TimeoutError as error:
            raise AssertionError(f"doctor finds {found}") from error


def test_a_whole_stack_is_well(stack: Stack, toban_here: Callable[..., Ended]) -> None:
    until_well(stack)
    answer = json.loads(toban_process(stack, "doctor", "-o", "json").stdout)
    assert answer["status"] == "ok"
    assert len(answer["checks"]) > 30
    done = toban_here("doctor", "-o", "wide")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith("checks are ok")
    seen = {tuple(line.split()[:2]) for line in done.stdout.splitlines() if line.startswith("ok ")}
    names = "configuration tls-files key-mode certificate identity server version clock migrations postgresql durability leader"
    assert {
        ("ok", name) for name in f"{names} coordinator executor disk redis redis-eviction partitions events".split()
    } <= seen


def test_faults_here_are_found(stack: Stack, tmp_path: Path) -> None:
    now = SystemClock().wall()
    own = stack.home.tls
    soon = certs.issue(own / "ca", "admin-cli", tmp_path / "soon", now=now - certs.LEAF_VALIDITY + timedelta(days=2))
    assert named(diagnose(stack, TOBAN_TLS_DIR=str(soon))) == {"certificate": "warning"}

    over = certs.issue(own / "ca", "admin-cli", tmp_path / "over", now=now - certs.LEAF_VALIDITY - timedelta(days=1))
    assert named(diagnose(stack, TOBAN_TLS_DIR=str(over))) == {"certificate": "error", "server": "error"}

    other = certs.make_all(tmp_path / "other") / "admin-cli"
    found = diagnose(stack, TOBAN_TLS_DIR=str(other))
    assert named(found) == {"trust": "error", "server": "error"}

    wrong = diagnose(stack, TOBAN_TLS_DIR=str(own / "executor"))
    assert named(wrong) == {"identity": "error", "server": "error"}

    readable = certs.issue(own / "ca", "admin-cli", tmp_path / "readable")
    (readable / "tls.key").chmod(0o644)
    assert named(diagnose(stack, TOBAN_TLS_DIR=str(readable))) == {"key-mode": "error", "server": "error"}

    mixed = certs.issue(own / "ca", "admin-cli", tmp_path / "mixed")
    (mixed / "tls.key").write_bytes((soon / "tls.key").read_bytes())
    assert named(diagnose(stack, TOBAN_TLS_DIR=str(mixed))) == {"tls-files": "error", "server": "error"}

    assert named(diagnose(stack, TOBAN_TLS_DIR=str(tmp_path / "nothing"))) == {"tls-files": "error"}
    assert named(diagnose(stack, TOBAN_COORDINATORS="nobody.invalid:1")) == {"server": "error"}
    assert named(diagnose(stack, TOBAN_COORDINATORS=stack.log_archivers[0])) == {
        "identity": "error",
        "server": "error",
    }
    assert named(diagnose(stack, TOBAN_COORDINATORS="no-port")) == {"configuration": "error"}
    assert diagnose(stack, TOBAN_LOG_ARCHIVERS=stack.coordinators[0])[0].name == "identity"


def test_faults_of_the_installation_are_found(stack: Stack) -> None:
    url = stack.endpoints().redis_url
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert named(diagnose(stack)) == {"redis-eviction": "warning"}
        client.config_set("maxmemory-policy", "noeviction")

    sql(stack, "INSERT INTO public.toban_migrations VALUES ('scheduler', 9999, 'future', 'x')")
    assert named(diagnose(stack)) == {"migrations": "warning"}
    sql(stack, "DELETE FROM public.toban_migrations WHERE version = 9999")
    sql(stack, "UPDATE public.toban_migrations SET version = 9002 WHERE schema = 'scheduler' AND version = 2")
    assert named(diagnose(stack)) == {"migrations": "error"}
    sql(stack, "UPDATE public.toban_migrations SET version = 2 WHERE version = 9002")

    sql(stack, "UPDATE scheduler.coordinators SET version = '0.0.1' WHERE role <> 'leader'")
    assert named(diagnose(stack)) == {"version": "warning"}
    # By name: when the leader changed just then, both said 0.0.1.
    sql(stack, "UPDATE scheduler.coordinators SET version = %(version)s", version=VERSION)
    until_well(stack)


def test_this_clock_is_found(stack: Stack) -> None:
    assert named(diagnose(stack, AheadClock(5.0))) == {"clock": "warning"}
    assert named(diagnose(stack, AheadClock(-500.0))) == {"clock": "error"}


def test_what_executors_say_of_their_machines_is_found(stack: Stack) -> None:
    with admin_of(stack) as admin:
        cluster = admin.cluster()
    ends = [member.certificate_not_after for member in cluster.coordinators]
    for executor in cluster.executors:
        assert abs(executor.clock_skew_seconds) < 60.0, "off by the time of the request; another zone would be hours"
        assert executor.disk_free_bytes > 0
        ends.append(executor.certificate_not_after)
    renewed_at = SystemClock().wall() + certs.LEAF_RENEW_BEFORE
    assert all(end.ToDatetime(UTC) > renewed_at for end in ends)
    heartbeat_of_a_strange_machine(stack)
    try:
        assert named(diagnose(stack)) == {
            "clock": "warning",
            "disk": "error",
            "certificate": "warning",
            "version": "warning",
            # It drains, so that it gets no run.
            "executor": "warning",
            # It says nothing of its class.
            "isolation": "warning",
        }
    finally:
        sql(stack, "DELETE FROM scheduler.executors WHERE instance = 'strange'")


def heartbeat_of_a_strange_machine(stack: Stack) -> None:
    """One heartbeat of an executor of another release whose clock is 5 s ahead, whose disk is full and whose certificate ends soon."""
    incarnation = IdSource().uuid()
    register = pb.RegisterRequest(
        incarnation=incarnation,
        instance="strange",
        node_id="n",
        boot_id="b",
        grpc_host="h",
        grpc_port=1,
        slots=1,
        version="0.0.1",
    )
    now = SystemClock().wall()
    beat = pb.HeartbeatRequest(
        incarnation=incarnation,
        draining=True,
        disk_free_bytes=1000,
        wall_clock=timestamp_to_pb(now + timedelta(seconds=5)),
        certificate_not_after=timestamp_to_pb(now + timedelta(days=3)),
    )
    tls = TlsFiles(stack.home.tls / "executor")
    with open_sync_channel(stack.coordinators[0], "coordinator", tls, certs.TRUST_DOMAIN) as channel:
        stub = rpc.ExecutorGatewayStub(channel)
        key = unary_sync(stub.Register, register, timeout=5.0).incarnation_key
        proof = (("toban-incarnation", incarnation), ("toban-incarnation-key", key))
        unary_sync(stub.Heartbeat, beat, timeout=5.0, metadata=proof)


@pytest.mark.long
def test_processes_that_are_gone_are_found(stack: Stack, whole_afterwards: None) -> None:
    with admin_of(stack) as admin:
        standby = next(name for name in ("coordinator-1", "coordinator-2") if name != leader_name(stack, admin))
        executor = executor_name(stack, admin, admin.cluster().executors[0].worker_id)
        stack.kill(executor, signal.SIGSTOP)
        admin.until(
            lambda: named(diagnose(stack)) == {"executor": "error"}, seconds=30, of="a silent executor is found"
        )
        stack.kill(executor, signal.SIGCONT)
        stack.kill(standby, signal.SIGKILL)

        def gone() -> bool:
            found = diagnose(stack)
            return {"server", "coordinator"} <= set(named(found)) and any(
                item.name == "server" and "cannot connect" in item.message for item in found
            )

        admin.until(gone, of="a dead coordinator is found")
        stack.start(standby)
    stack.kill("redis", signal.SIGKILL)
    with admin_of(stack) as admin:
        admin.until(lambda: named(diagnose(stack)).get("redis") == "warning", of="a dead Redis is found")
        stack.start("redis")
        for name in ("coordinator-1", "coordinator-2"):
            stack.kill(name, signal.SIGSTOP)
        found = diagnose(stack)
        assert named(found)["server"] == "error"
        for name in ("coordinator-1", "coordinator-2"):
            stack.kill(name, signal.SIGCONT)
    until_well(stack)


@pytest.fixture
def unscheduled(admin: AdminClient) -> Iterator[None]:
    """No schedule that the test makes acts after it."""
    schedules = partial(
        admin.call, rpc.JobReaderStub, "ListSchedules", pb.ListSchedulesRequest(page=common_pb2.Page(limit=500))
    )
    before = {one.name for one in schedules().schedules}
    yield
    for one in schedules().schedules:
        if one.name not in before:
            admin.call(rpc.JobControlStub, "DeleteSchedule", pb.DeleteScheduleRequest(name=one.name))


def test_a_crontab_is_imported_and_one_of_its_jobs_runs(
    admin: AdminClient, toban_here: Callable[..., Ended], unscheduled: None
) -> None:
    words = ("import", "crontab", str(ROOT / "examples" / "crontab"), "--timezone", "Europe/Berlin", "--apply")
    done = toban_here(*words)
    # Its @reboot has no schedule.
    assert done.returncode == 65, done.stderr
    assert "NOT carried over: the time of line 29" in done.stderr
    assert all(line.endswith(" created") for line in done.stdout.splitlines())
    again = toban_here(*words)
    assert {line.rpartition(" ")[2] for line in again.stdout.splitlines()} == {"unchanged"}
    [greeting, disk] = [*admin.start("cat"), *admin.start("df")]
    assert admin.until_ended(greeting).state == "SUCCEEDED"
    assert admin.until_ended(disk).state == "SUCCEEDED"
    admin.until(lambda: len(admin.log(greeting)) == 2, of="its output")
    assert admin.log(greeting) == ["Good morning!", "It is nine o'clock."]
