"""Calls of a program that holds the key of an executor, of a worker or of its own, and claims to be more: nothing of others is reached."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from toban_domain.errors import ErrorCode
from toban_domain.incarnation_key import key_metadata
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_proto.v1.common_pb2 import AttemptKey, LogTicket
from toban_runtime.clock import SystemClock
from toban_runtime.ids import IdSource
from toban_stack import certs
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.coordinator_calls import registration
from toban_transport.log_ticket import TicketSigner
from toban_transport.tls import TlsFiles

SECONDS = 20.0
REFUSALS = (
    ErrorCode.PERMISSION_DENIED,
    ErrorCode.UNAUTHENTICATED,
    ErrorCode.INVALID_ARGUMENT,
    ErrorCode.INCARNATION_UNKNOWN,
    ErrorCode.WRONG_INCARNATION,
)
_ids = IdSource()


def victim(admin: AdminClient) -> pb.Executor:
    """The executor of the stack that takes work."""
    [found] = [one for one in admin.cluster().executors if one.state == "on" and one.node_id != "attacker"]
    return found


@pytest.fixture
def live(admin: AdminClient) -> Iterator[pb.Run]:
    """A run of the victim that has printed a line and goes on."""
    spec = {"steps": [{"argv": ["sh", "-c", "echo genuine; exec sleep 600"]}], "allow_shell": True}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "victim"}, "spec": spec})
    [run_id] = admin.start("victim")
    admin.until(lambda: admin.run(run_id).state == "RUNNING", of="the victim runs")
    admin.until(lambda: admin.log(run_id) == ["genuine"], of="its line is stored")
    yield admin.run(run_id)
    admin.cancel(run_id, mode="kill")
    assert admin.until_ended(run_id).state == "CANCELED", "no other process has ended it"
    assert admin.log(run_id) == ["genuine"]


def test_a_registration_takes_over_no_instance(attacks: Any, admin: AdminClient, channel: Any, live: pb.Run) -> None:
    mine = victim(admin)
    its = {"instance": mine.instance, "node_id": mine.node_id}
    attest = {"previous_incarnation": mine.incarnation, "previous_verified_empty": True}
    for folder, group in (("executor", "its own group"), ("executor-pci", "another group")):
        register = rpc.ExecutorGatewayStub(channel("coordinator", folder)).Register
        for what, claims in {
            "its instance": its,
            "its instance with a guessed secret": {**its, "instance_secret": "5" * 64},
            "its death": {**its, **attest},
            "its reboot": {**its, "boot_id": "another"},
            "its incarnation": {**its, "incarnation": mine.incarnation},
        }.items():
            request = registration(**claims)
            attacks.call(f"{what} by {group}", lambda r=request, c=register: c(r, timeout=SECONDS), *REFUSALS)
    assert victim(admin).incarnation == mine.incarnation


@pytest.mark.parametrize(
    "claims",
    [
        {"labels": {"pool": "pci"}},
        {"labels": {f"l{number}": "x" for number in range(65)}},
        {"labels": {"x" * 100_000: "y"}},
        {"labels": {"x": "y" * 100_000}},
        {"grpc_host": "x" * 100_000},
        {"grpc_port": 99_999},
        {"slots": 2_000_000_000},
        {"incarnation": "not a uuid"},
        {"node_id": "nul\0"},
        {"epoch_max": -5},
    ],
    ids=lambda claims: next(iter(claims)),
)
def test_a_registration_claims_nothing_unbounded(attacks: Any, channel: Any, claims: dict[str, Any]) -> None:
    register = rpc.ExecutorGatewayStub(channel("coordinator", "executor")).Register
    attacks.call(str(claims)[:40], lambda: register(registration(**claims), timeout=SECONDS), *REFUSALS)


def test_a_claimed_epoch_ends_no_term(attacks: Any, admin: AdminClient, channel: Any) -> None:
    """An epoch counts with the signature of a coordinator only, so no registration uses up the numbers of terms."""
    before = admin.cluster().epoch
    register = rpc.ExecutorGatewayStub(channel("coordinator", "executor")).Register
    for step in range(20):
        claim = registration(instance=f"epoch-{step}", node_id="attacker", epoch_max=before + ((step + 1) << 51))
        codes = (*REFUSALS, ErrorCode.EPOCH_UNPROVEN)
        attacks.call(f"an epoch {step + 1} terms ahead", lambda c=claim: register(c, timeout=SECONDS), *codes)
    after = admin.cluster().epoch
    attacks.expect("another term", refused=after == before, instead=after)


def test_a_wrong_key_speaks_for_no_incarnation(attacks: Any, admin: AdminClient, channel: Any, live: pb.Run) -> None:
    mine = victim(admin).incarnation
    own = registration(instance="attacker", node_id="attacker", labels={"bait": "x"})
    gateway = rpc.ExecutorGatewayStub(channel("coordinator", "executor"))
    key = gateway.Register(own, timeout=SECONDS).incarnation_key
    proofs = {
        "no key": (),
        "an empty key": key_metadata(mine, ""),
        "a guess": key_metadata(mine, "k" * 43),
        "the key of another": key_metadata(mine, key),
        "another incarnation": key_metadata(own.incarnation, key),
        "one that is not registered": key_metadata(_ids.uuid(), key),
    }
    ended = pb.AttemptReport(key=AttemptKey(run_id=live.id, token=live.token))
    for folder in ("executor", "executor-pci"):
        stub = rpc.ExecutorGatewayStub(channel("coordinator", folder))
        for what, proof in proofs.items():
            for method, request in (
                (stub.Heartbeat, pb.HeartbeatRequest(incarnation=mine)),
                (stub.Report, pb.ReportRequest(incarnation=mine, reports=[ended])),
                (stub.ConfirmContinuation, pb.ConfirmContinuationRequest(incarnation=mine)),
                (stub.RenewLogTickets, pb.RenewLogTicketsRequest(incarnation=mine)),
            ):
                call = lambda m=method, r=request, p=proof: m(r, timeout=SECONDS, metadata=p)  # noqa: E731
                attacks.call(f"{type(request).__name__} with {what} by {folder}", call, *REFUSALS)
    # It sends no heartbeat: until it counts as lost, runs of other tests could be placed there.
    admin.until(lambda: not _takes_work(admin, "attacker"), of="the attacker's executor is off")


def _takes_work(admin: AdminClient, node_id: str) -> bool:
    return any(one.node_id == node_id and one.state == "on" for one in admin.cluster().executors)


def append(stub: Any, ticket: LogTicket, run: pb.Run, metadata: Any = ()) -> list[str]:
    """The refusals of a seal that would end the log of the run, sent with this ticket."""
    seal = logs_pb2.Seal(run_id=run.id, token=run.token, last_seq=0)
    request = logs_pb2.AppendRequest(request_id=1, tickets=[ticket], seals=[seal])
    answers = stub.Append(iter([request]), timeout=SECONDS, metadata=metadata)
    return [one.code for answer in answers for one in answer.refusals]


def test_no_ticket_writes_into_the_log_of_another_run(
    attacks: Any, stack: Stack, admin: AdminClient, channel: Callable[..., grpc.Channel], live: pb.Run, tmp_path: Path
) -> None:
    mine = victim(admin).incarnation
    facts = {
        "run_id": live.id,
        "token": live.token,
        "incarnation": mine,
        "log_day": SystemClock().wall().date().isoformat(),
    }
    strangers = certs.make_all(tmp_path / "strangers")
    tickets = {
        f"a ticket that {name} has signed": TicketSigner(TlsFiles(folder)).sign(**facts)
        for name, folder in {
            "an executor": stack.home.tls / "executor",
            "a worker": stack.home.tls / "external-worker",
            "a log-archiver": stack.home.tls / "log-archiver",
            "a coordinator of another authority": strangers / "coordinator",
        }.items()
    }
    tickets["no ticket"] = LogTicket()
    # What a job finds that reads the journal of its executor; it lacks the key of the incarnation.
    journal = next(iter(stack.home.data.glob("executor-*/journal.sqlite3")))

    def stolen() -> bytes:
        with sqlite3.connect(journal) as connection:
            row = connection.execute("SELECT ticket FROM tickets WHERE run_id = ?", (live.id,)).fetchone()
        return bytes(row[0]) if row else b""

    tickets["the ticket in the journal"] = LogTicket.FromString(admin.until(stolen, of="the ticket is in the journal"))
    for folder in ("executor", "executor-pci"):
        stub = logs_pb2_grpc.LogIngestStub(channel("log-archiver", folder))
        for what, ticket in tickets.items():
            for proof in ((), key_metadata(mine, "k" * 43)):
                codes = append(stub, ticket, live, proof)
                refused = codes in (["TICKET_INVALID"], ["TICKET_MISSING"])
                attacks.expect(f"{what} by {folder}", refused=refused, instead=codes)


def test_no_output_is_read_without_a_ticket_for_it(
    attacks: Any, admin: AdminClient, channel: Any, live: pb.Run
) -> None:
    admin.apply(
        {
            "apiVersion": "toban/v1",
            "kind": "Job",
            "metadata": {"name": "other"},
            "spec": {"steps": [{"argv": ["true"]}]},
        }
    )
    [other] = admin.start("other")
    good = admin.read_ticket(other)
    changed = type(good).FromString(good.SerializeToString())
    changed.body += b"\x00"
    for folder in ("admin-web", "admin-cli"):
        stub = logs_pb2_grpc.LogReaderStub(channel("log-archiver", folder))
        for what, ticket in {"no ticket": None, "a ticket of another run": good, "a changed one": changed}.items():
            for method, request in (
                (stub.Read, logs_pb2.ReadLogRequest(run_id=live.id, ticket=ticket)),
                (stub.Search, logs_pb2.SearchLogRequest(run_ids=[live.id], ticket=ticket)),
            ):
                call = lambda m=method, r=request: list(m(r, timeout=SECONDS))  # noqa: E731
                codes = (ErrorCode.TICKET_MISSING, ErrorCode.TICKET_INVALID, ErrorCode.PERMISSION_DENIED)
                attacks.call(f"{type(request).__name__} with {what} by {folder}", call, *codes)


def test_a_worker_of_one_type_claims_no_other(attacks: Any, channel: Any) -> None:
    stub = rpc.ExternalWorkStub(channel("coordinator", "external-worker.gpu"))
    stub.Claim(pb.ClaimRequest(worker="w", worker_type="gpu", limit=1), timeout=SECONDS)
    for other in ("cpu", "gpu2", "GPU", "gpu/../cpu", ""):
        request = pb.ClaimRequest(worker="w", worker_type=other, limit=1)
        attacks.call(f"claims {other!r}", lambda r=request: stub.Claim(r, timeout=SECONDS), *REFUSALS)
