"""Groups of executors over a whole stack: work goes to the right one, and the key of one group reaches nothing of another one."""

import asyncio
import json
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_proto.v1.common_pb2 import LogTicket
from toban_proto.v1.coordinator_pb2_grpc import ExecutorGatewayStub
from toban_proto.v1.logs_pb2_grpc import LogIngestStub
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.coordinator_calls import registration
from toban_testing.stack_fixtures import admin_of, executor_name, running_stack, sql, toban_process
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import duplex, unary
from toban_transport.tls import TlsFiles

pytestmark = [pytest.mark.e2e, pytest.mark.long]
GROUPS = ("pci", "web")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("home")
    with running_stack(home, coordinators=1, executors=1, groups=GROUPS, slots=4) as made, admin_of(made) as admin:
        for group in GROUPS:
            assert toban(made, "group", "add", group, "--label", f"pool={group}", "--reason", "apart").startswith(
                f"executor group {group} (version 1): labels pool={group}"
            )
        admin.until(lambda: len(groups_of(admin)) == 3, of="the executors of all groups registered")
        yield made


def toban(stack: Stack, *words: str) -> str:
    """What a command prints, also before a test."""
    done = toban_process(stack, *words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def groups_of(admin: AdminClient) -> dict[str, pb.Executor]:
    """The executor of each group that takes work."""
    return {one.group: one for one in admin.cluster().executors if one.state == "on"}


def job(name: str, script: str, group: str) -> dict[str, Any]:
    steps = [{"argv": ["sh", "-c", script]}]
    spec = {"steps": steps, "allow_shell": True, "selector": {"labels": {"pool": group}}}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def as_group(stack: Stack, group: str, work: Callable[[ChannelPool], Awaitable[Any]]) -> Any:
    """Does this with the key of a group's executors."""

    async def run() -> Any:
        folder = stack.home.tls / f"executor-{group}"
        channels = ChannelPool(tls=TlsFiles(folder), trust_domain="toban.internal")
        try:
            return await work(channels)
        finally:
            await channels.close()

    return asyncio.run(run())


def register(stack: Stack, group: str, **claims: Any) -> Any:
    """Registers as a program with the key of the group."""

    async def call(channels: ChannelPool) -> Any:
        stub = channels.stub(ExecutorGatewayStub, stack.coordinators[0], "coordinator")
        return await unary(stub.Register, registration(**claims), timeout=10)

    return as_group(stack, group, call)


def test_a_run_goes_to_the_group_that_its_selector_names(stack: Stack, admin: AdminClient) -> None:
    for group in GROUPS:
        admin.apply(job(f"hello-{group}", "echo from $(hostname)", group))
        [run] = admin.start(f"hello-{group}")
        ended = admin.until_ended(run)
        assert (ended.state, ended.worker_id) == ("SUCCEEDED", groups_of(admin)[group].worker_id)
        assert admin.log(run)
    shown = json.loads(toban(stack, "group", "list", "-o", "json"))
    assert [(one["name"], one["executors"]) for one in shown] == [("default", 1), ("pci", 1), ("web", 1)]
    assert "pool=pci" in toban(stack, "group", "get", "pci")


@pytest.mark.parametrize(
    "claims",
    [{"labels": {"pool": "pci"}}, {"instance": "of the victim"}, {"instance": "of the victim", "boot_id": "another"}],
    ids=["labels of another group", "its instance", "its death"],
)
def test_the_key_of_one_group_registers_nothing_of_another_one(
    stack: Stack, admin: AdminClient, claims: dict[str, Any]
) -> None:
    victim = groups_of(admin)["pci"]
    if "instance" in claims:
        # A job of an executor that shares its state directory could read both.
        secret = (stack.home.data / "executor-pci-1" / "instance-secret").read_text().strip()
        claims = {**claims, "instance": victim.instance, "node_id": victim.node_id, "instance_secret": secret}
        claims |= {"previous_incarnation": victim.incarnation, "previous_verified_empty": True}
    with pytest.raises(TobanError) as caught:
        register(stack, "web", **claims)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED
    assert groups_of(admin)["pci"].incarnation == victim.incarnation
    assert not [row for row in sql(stack, "SELECT attested_reason FROM scheduler.executors") if row["attested_reason"]]


@pytest.mark.parametrize("thief", GROUPS)
def test_a_ticket_out_of_the_journal_writes_no_line(stack: Stack, admin: AdminClient, thief: str) -> None:
    """As a job would that has read the journal and the TLS key of its own executor, or of another one: it lacks the key of the incarnation."""
    admin.apply(job("victim", "echo genuine; exec sleep 600", "pci"))
    [run] = admin.start("victim")
    journal = stack.home.data / "executor-pci-1" / "journal.sqlite3"

    def ticket() -> bytes:
        with sqlite3.connect(journal) as connection:
            row = connection.execute("SELECT ticket FROM tickets WHERE run_id = ?", (run,)).fetchone()
        return bytes(row[0]) if row else b""

    stolen = LogTicket.FromString(admin.until(ticket, of="the ticket is in the journal"))

    async def append(channels: ChannelPool) -> list[str]:
        token = admin.run(run).token
        seal = logs_pb2.Seal(run_id=run, token=token, last_seq=0)

        async def requests() -> Any:
            yield logs_pb2.AppendRequest(request_id=1, tickets=[stolen], seals=[seal])

        stub = LogIngestStub(channels.get(stack.log_archivers[0], "log-archiver"))
        return [one.code async for answer in duplex(stub.Append, requests(), timeout=10) for one in answer.refusals]

    assert as_group(stack, thief, append) == ["TICKET_INVALID"]
    admin.until(lambda: admin.log(run) == ["genuine"], of="its own line was stored")
    admin.cancel(run, mode="kill")
    assert admin.until_ended(run).state == "CANCELED"


def test_lines_of_a_dead_incarnation_reach_the_log_with_renewed_tickets(stack: Stack, admin: AdminClient) -> None:
    admin.apply(job("chatty", "seq 1 2000; exec sleep 600", "pci"))
    victim = groups_of(admin)["pci"]
    archiver = next(name for name in stack.processes() if name.startswith("log-archiver"))
    stack.kill(archiver, signal.SIGSTOP)
    [run] = admin.start("chatty")
    journal = stack.home.data / "executor-pci-1" / "journal.sqlite3"

    def lines() -> int:
        with sqlite3.connect(journal) as connection:
            found = connection.execute("SELECT coalesce(sum(lines), 0) FROM chunks WHERE run_id = ?", (run,)).fetchone()
        return int(found[0])

    admin.until(lambda: lines() >= 2000, of="the lines are in the journal")
    name = executor_name(stack, admin, victim.worker_id)
    stack.kill(name, signal.SIGKILL)
    # No job of the group from here on: the run is repeated, and must not print again.
    admin.cancel(run, mode="kill")
    # Until the witness, which has the key of the dead incarnation, has given up.
    admin.until(lambda: admin.run(run).state == "CANCELED", of="the run ended")
    stack.start(name)
    admin.until(
        lambda: groups_of(admin).get("pci", victim).incarnation != victim.incarnation, seconds=60, of="it is back"
    )
    stack.kill(archiver, signal.SIGCONT)
    expected = [str(number) for number in range(1, 2001)]
    admin.until(lambda: admin.log(run)[:2000] == expected, of="every line is stored")
    admin.until(lambda: lines() == 0, of="the journal is empty")
