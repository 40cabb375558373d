"""A machine becomes an executor with an invite, over a whole stack: site, coordinator, signer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from toban_domain.errors import TobanError
from toban_proto.v1.joining_pb2 import RenewCertificateRequest, SignedCertificate
from toban_proto.v1.joining_pb2_grpc import CertificateRenewalStub
from toban_stack.stack import Stack
from toban_testing.stack_fixtures import admin_of, running_stack, sql, toban_process
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.identity import spiffe_ids
from toban_transport.issue import new_request
from toban_transport.tls import TlsFiles

pytestmark = [pytest.mark.e2e, pytest.mark.long]
JOB = """
apiVersion: toban/v1
kind: Job
metadata: {name: there}
spec:
  selector: {labels: {pool: far}}
  steps: [{argv: [echo, done there]}]
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("home")
    with running_stack(home, coordinators=1, executors=1, admin_webs=1, signers=1, slots=2) as made:
        toban(made, "group", "add", "far", "--label", "pool=far")
        yield made


def toban(stack: Stack, *words: str, code: int = 0) -> str:
    """What a command prints, on both streams."""
    done = toban_process(stack, *words)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def settings(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_a_machine_joins_runs_jobs_and_renews_its_certificate(stack: Stack, tmp_path: Path) -> None:
    token = toban(stack, "invite", "add", "--group", "far", "-o", "name").strip()
    folder = tmp_path / "etc/executor"
    place = ("--dir", os.path.relpath(folder), "--advertise", "127.0.0.1", "--port", "29911")
    said = toban(stack, "executor", "join", f"http://{stack.sites[0]}", token, *place, "--print-unit")
    assert "certificate of executor group far until" in said and f"EnvironmentFile={folder}.env" in said
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert spiffe_ids(TlsFiles(folder).current().certificate) == ("spiffe://toban.internal/executor/far",)
    again = toban(stack, "executor", "join", f"http://{stack.sites[0]}", token, *place, code=73)
    assert "has a key already" in again
    other = ("--dir", str(tmp_path / "other"))
    refused = toban(stack, "executor", "join", f"http://{stack.sites[0]}", token, *other, code=77)
    assert "the token of the invite is not good" in refused and not (tmp_path / "other/tls.key").exists()

    base = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
    more = {"SCHEDULER_STATE_DIR": str(tmp_path / "state"), "SCHEDULER_NODE_ID": "far-1"}
    environment = {**base, **settings(folder.with_name("executor.env")), **more}
    (tmp_path / "job.yaml").write_text(JOB)
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen([sys.executable, "-m", "toban_executor"], env=environment, stdout=log, stderr=log) as executor,
        admin_of(stack) as admin,
    ):
        try:
            admin.until(
                lambda: any(one.node_id == "far-1" and one.state == "on" for one in admin.cluster().executors),
                of="the machine registered",
            )
            toban(stack, "apply", "-f", str(tmp_path / "job.yaml"))
            assert "done there" in toban(stack, "run", "start", "there", "--wait", "--follow")
        finally:
            executor.send_signal(signal.SIGTERM)
            executor.wait(60)
    with pytest.raises(TobanError, match="in the last half of its life"):
        asyncio.run(renew(stack, folder))
    # As if it had been signed 20 days earlier.
    sql(
        stack,
        "UPDATE scheduler.executor_certificates SET signed_at = signed_at - interval '20 d', ends_at = ends_at - interval '20 d'",
    )
    renewed = x509.load_pem_x509_certificate(asyncio.run(renew(stack, folder)).certificate_pem)
    serial = f"{TlsFiles(folder).current().certificate.serial_number:x}"
    assert f"{renewed.serial_number:x}" in toban(stack, "audit", "list", "--target", serial, "-o", "json")
    with pytest.raises(TobanError, match="no machine got it by joining"):
        asyncio.run(renew(stack, stack.home.tls / "executor"))
    assert spiffe_ids(renewed) == ("spiffe://toban.internal/executor/far",)


async def renew(stack: Stack, folder: Path) -> SignedCertificate:
    """As the loop of the executor does."""
    channels = ChannelPool(tls=TlsFiles(folder), trust_domain="toban.internal")
    try:
        stub = CertificateRenewalStub(channels.get(stack.coordinators[0], "coordinator"))
        return await unary(stub.Renew, RenewCertificateRequest(request_pem=new_request()[1]), timeout=10.0)
    finally:
        await channels.close()
