"""Certificates change under a running stack under load: no run lost, no call fails, and what is not trusted any more is refused."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_stack import certificate_rotation, certs
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.admin_port import ask_process, metrics_of
from toban_testing.stack_fixtures import admin_of, running_stack
from toban_transport.channel import open_sync_channel
from toban_transport.client_calls import stream_sync
from toban_transport.errors import from_rpc_error
from toban_transport.replica_client import Fleet
from toban_transport.tls import TlsFiles

pytestmark = pytest.mark.e2e
ROLES = ("coordinator", "executor", "log-archiver")
QUICK = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "quick"},
    "spec": {"steps": [{"argv": ["sh", "-c", "echo run $TOBAN_RUN_ID"]}], "allow_shell": True},
}


@dataclass
class Load:
    """Runs that are started all the time, over connections that live on and by commands that come and go."""

    coordinators: Fleet
    stack: Stack
    # Seconds between two calls, and between two commands.
    pauses: tuple[float, float]
    runs: list[int] = field(default_factory=list)
    commands: int = 0
    errors: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def call(self) -> None:
        """Starts runs as a client that lives on, such as admin-web."""
        request = pb.StartRunsRequest(runs=[pb.StartRunRequest(job="quick")] * 3)
        while not self.over.wait(self.pauses[0]):
            try:
                answer = self.coordinators.call(_start, request, timeout=30)
                self.runs += [run.run_id for run in answer.runs]
            except TobanError as error:
                self.errors.append(f"call: {error.message}")

    def command(self) -> None:
        """Starts a run by the command line and waits for its end."""
        environment = {**os.environ, "TOBAN_HOME": str(self.stack.home.root)}
        argv = [sys.executable, "-m", "toban_cli", "run", "start", "quick", "--wait", "--follow"]
        while not self.over.wait(self.pauses[1]):
            done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
            self.commands += 1
            if done.returncode != 0:
                self.errors.append(f"command: exit {done.returncode} {done.stderr}")


def _start(channel: Any) -> Any:
    return rpc.JobControlStub(channel).StartRuns


@contextmanager
def load(stack: Stack, pauses: tuple[float, float]) -> Iterator[Load]:
    """Load until the end of the block; nothing of it may fail."""
    files = TlsFiles(stack.home.tls / "admin-cli")
    fleet = Fleet(service="coordinator", addresses=stack.coordinators, tls=files, trust_domain=certs.TRUST_DOMAIN)
    load = Load(fleet, stack, pauses)
    threads = [threading.Thread(target=load.call), threading.Thread(target=load.command)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.over.set()
        for thread in threads:
            thread.join()
        fleet.close()
    assert load.errors == []
    assert load.commands > 0 and load.runs


@contextmanager
def followed(stack: Stack, admin: AdminClient, stop: Path) -> Iterator[None]:
    """A run's lines, followed from before the block to its end: no change of certificates may cut the stream, only the end of its read ticket."""
    counts = f"i=0; while [ ! -e {stop} ]; do i=$((i+1)); echo $i; sleep 0.1; done"
    spec = {"steps": [{"argv": ["sh", "-c", counts]}], "allow_shell": True}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "counts"}, "spec": spec})
    [run_id] = admin.start("counts")
    lines: list[int] = []
    errors: list[str] = []
    channel = open_sync_channel(
        stack.log_archivers[0], "log-archiver", TlsFiles(stack.home.tls / "admin-cli"), certs.TRUST_DOMAIN
    )

    def read() -> None:
        request = logs_pb2.ReadLogRequest(run_id=run_id, follow=True)
        expired = True
        while expired:
            request.ticket.CopyFrom(admin.read_ticket(run_id))
            try:
                for page in stream_sync(logs_pb2_grpc.LogReaderStub(channel).Read, request, timeout=200):
                    lines.extend(int(line.text) for line in page.lines)
                    if page.lines:
                        request.after.token, request.after.seq = page.token, page.lines[-1].seq
                return
            except TobanError as error:
                expired = error.code is ErrorCode.TICKET_EXPIRED
                errors.extend([] if expired else [error.message])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        admin.until(lambda: bool(lines), of="lines are followed")
        yield
    finally:
        stop.touch()
        reader.join()
        channel.close()
    assert errors == []
    assert lines == list(range(1, len(lines) + 1)), "every line once, and no stream ended but by its read ticket"
    assert admin.until_ended(run_id).state == "SUCCEEDED"


def ports(stack: Stack) -> dict[str, tuple[str, int]]:
    """Role and mTLS port of each process."""
    found = {name: one for name, one in stack.processes().items() if one.role in ROLES}
    return {name: (one.role, int(one.address.rpartition(":")[2])) for name, one in found.items()}


def shown(port: int, tls: Path) -> int:
    """The serial number that a server shows to a new connection with the certificate in the folder `tls`. Raises OSError when it refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(tls / "ca.crt")
    context.load_cert_chain(tls / "tls.crt", tls / "tls.key")
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="admin-cli.toban.internal") as wrapped,
    ):
        # A refusal of the client's certificate comes with the first read; a server that takes it sends its settings.
        if not wrapped.recv(1):
            raise ConnectionError("the server closed the connection")
        der = wrapped.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def serial(folder: Path) -> int:
    """The serial number of the certificate in a service's folder."""
    return x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes()).serial_number


def all_show_new(stack: Stack, admin: AdminClient) -> None:
    """Until every mTLS port shows what is in its files."""
    tls = stack.home.tls
    for name, (role, port) in ports(stack).items():
        admin.until(
            lambda port=port, role=role: shown(port, tls / "admin-cli") == serial(tls / role),  # type: ignore[misc]
            of=f"{name} shows its new certificate",
        )


def metric(stack: Stack, name: str, process: str) -> float:
    """A number of a process's /metrics."""
    [value] = [line.split()[1] for line in metrics_of(stack, process) if line.startswith(f"{name} ")]
    return float(value)


def changes(stack: Stack) -> dict[str, float]:
    """How many changes of its files each process has taken."""
    return {name: metric(stack, "toban_tls_reloads_total", name) for name in ports(stack)}


@contextmanager
def all_take(stack: Stack, admin: AdminClient) -> Iterator[None]:
    """Files change in the block; until every process has taken them."""
    before = changes(stack)
    yield
    admin.until(
        lambda: all(now > before[name] for name, now in changes(stack).items()),
        of="every process has taken the new files",
    )


def all_succeeded(stack: Stack, ids: list[int]) -> None:
    """Each run succeeded at its first attempt, and its line is there; asked over new connections."""
    with admin_of(stack) as admin:
        for run_id in ids:
            run = admin.until_ended(run_id)
            assert (run.state, run.attempt, run.lost_count) == ("SUCCEEDED", 1, 0), f"run {run_id}: {run.error_summary}"
        for run_id in ids[:: max(1, len(ids) // 20)]:
            line = [f"run {run_id}"]
            admin.until(lambda run_id=run_id, line=line: admin.log(run_id) == line, of="its line")  # type: ignore[misc]


def works(stack: Stack) -> None:
    """Runs start, end and have their lines."""
    with admin_of(stack) as admin:
        ids = admin.start("quick", count=5)
    all_succeeded(stack, ids)


# A load that leaves the machine some room, since a command costs half a second of a core; and all that it can take.
@pytest.mark.seed(120)
@pytest.mark.parametrize(
    ("executors", "pauses"), [(1, (0.25, 0.5)), pytest.param(2, (0.05, 0.0), marks=pytest.mark.long)]
)
def test_renewal_and_another_authority_under_load(tmp_path: Path, executors: int, pauses: tuple[float, float]) -> None:
    with running_stack(tmp_path / "home", executors=executors) as stack, admin_of(stack) as admin:
        admin.apply(QUICK)
        tls = stack.home.tls
        former = shutil.copytree(tls / "admin-cli", tmp_path / "former")
        pids = {name: record.pid for name, record in stack.processes().items()}
        with load(stack, pauses) as running, followed(stack, admin, tmp_path / "stop"):
            # Leaves that live for seconds only, replaced while they are in use.
            with all_take(stack, admin):
                certificate_rotation.renew(tls, validity=timedelta(seconds=15))
            all_show_new(stack, admin)
            with all_take(stack, admin):
                certificate_rotation.renew(tls)
            all_show_new(stack, admin)
            with all_take(stack, admin):
                certificate_rotation.trust_new_ca(tls)
            with all_take(stack, admin):
                certificate_rotation.use_new_ca(tls)
            all_show_new(stack, admin)
        # Log tickets that the old authority vouched for are still needed until these runs have handed in their lines.
        all_succeeded(stack, running.runs)
        with load(stack, pauses) as running, all_take(stack, admin):
            certificate_rotation.drop_old_ca(tls)
        all_succeeded(stack, running.runs)
        assert {name: record.pid for name, record in stack.processes().items()} == pids, "nothing was started anew"

        for name, (_, port) in ports(stack).items():
            shutil.copy(tls / "admin-cli" / "ca.crt", former / "ca.crt")
            with pytest.raises(OSError, match=r"."):
                shown(port, former)
            assert shown(port, tls / "admin-cli"), name
        each_client_has_new_certificates(stack, executors)


def each_client_has_new_certificates(stack: Stack, executors: int) -> None:
    """A coordinator that was started after the old authority was dropped never trusted it. Alone, it serves everybody: so each executor and
    each log-archiver, running since before the first change, shows its new certificate as a client too, and takes orders of it."""
    stack.kill("coordinator-1", signal.SIGKILL)
    stack.start("coordinator-1")
    stack.kill("coordinator-2", signal.SIGKILL)
    with admin_of(stack) as fresh:
        fresh.until(
            lambda: _all_on(fresh, executors), seconds=30, of="every executor has a grant of the new coordinator"
        )
    works(stack)
    stack.start("coordinator-2")


def _all_on(admin: AdminClient, executors: int) -> bool:
    cluster = admin.cluster()
    fresh = [one for one in cluster.executors if one.state == "on"]
    late = [one for one in fresh if cluster.server_time.seconds - one.last_heartbeat_at.seconds > 3]
    return bool(cluster.leader_address) and len(fresh) == executors and not late


@pytest.mark.long
def test_a_stack_that_was_off_for_a_month(tmp_path: Path) -> None:
    """All certificates have expired; each is renewed before anything connects, and a revoked one makes no further call."""
    home = tmp_path / "home"
    tls = certs.make_all(home / "tls", now=SystemClock().wall() - timedelta(days=31))
    for role in ROLES:
        with pytest.raises(TobanError, match="expired at"):
            TlsFiles(tls / role)
    with running_stack(home, coordinators=1, executors=1) as stack, admin_of(stack) as admin:
        admin.apply(QUICK)
        works(stack)
        stolen = Path(shutil.copytree(tls / "admin-cli", tmp_path / "stolen"))
        certificate_rotation.revoke(tls, "admin-cli")
        with open_sync_channel(stack.coordinators[0], "coordinator", TlsFiles(stolen), certs.TRUST_DOMAIN) as channel:
            reader = rpc.JobReaderStub(channel)

            def refused() -> bool:
                try:
                    reader.GetCluster(pb.GetClusterRequest(), timeout=10)
                except grpc.RpcError as error:
                    return "deny-list" in from_rpc_error(error).message
                return False

            admin.until(refused, of="the stolen certificate is refused")
        works(stack)


@pytest.mark.long
def test_files_that_cannot_be_taken(tmp_path: Path) -> None:
    """A pair that does not fit, a file that is gone, an expired certificate: the last good ones stay in use, and it is said."""
    with running_stack(tmp_path / "home", coordinators=1, executors=1) as stack, admin_of(stack) as admin:
        admin.apply(QUICK)
        tls, process = stack.home.tls, "executor-1"
        folder = tls / "executor"
        good = shutil.copytree(folder, tmp_path / "good")
        port, before = ports(stack)[process][1], serial(folder)
        failures = metric(stack, "toban_tls_reload_failures_total", process)

        def spoil(how: str) -> None:
            if how == "is not the key of":
                shutil.copy(tls / "coordinator" / "tls.key", folder / "tls.key")
            elif how == "cannot be read":
                (folder / "tls.crt").unlink()
            else:
                certs.reissue(tls / "ca", "executor", folder, validity=timedelta(seconds=-60))

        for number, how in enumerate(("is not the key of", "cannot be read", "expired at"), start=1):
            spoil(how)
            admin.until(lambda how=how: how in _problem(stack, process), of=f"/healthz says {how!r}")  # type: ignore[misc]
            admin.until(
                lambda wanted=failures + number: metric(stack, "toban_tls_reload_failures_total", process) == wanted,  # type: ignore[misc]
                of="it is counted",
            )
            assert shown(port, tls / "admin-cli") == before
            works(stack)
            for name in ("tls.key", "tls.crt"):
                shutil.copy(good / name, folder / name)
            admin.until(lambda: not _problem(stack, process), of="all is well again")


def _problem(stack: Stack, process: str) -> str:
    """The problem with its certificate that /healthz of a process shows."""
    check = json.loads(ask_process(stack, process, "/healthz"))["checks"]["certificate"]
    assert (check["status"] == "ok") == ("problem" not in check["value"])
    return str(check["value"].get("problem", ""))
