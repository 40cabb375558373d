"""The stacks that attacks go against, and the count of attacks and refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack import certs
from toban_stack.stack import Stack
from toban_testing import forged_certificates
from toban_testing.admin_client import AdminClient
from toban_testing.hostile_jobs import isolating_stack, note, start_hostile
from toban_testing.job_escapes import new_mark
from toban_testing.stack_fixtures import admin_of, running_stack
from toban_transport.channel import open_sync_channel
from toban_transport.errors import from_rpc_error
from toban_transport.tls import TlsFiles

GROUP, WORKER, SHARED = "executor/pci", "external-worker/gpu", "shared/all"
SECONDS = 20.0
_totals = {"attacks": 0, "refused": 0}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What `make attack-test` is read for."""
    terminalreporter.write_line(f"{_totals['attacks']} attacks, {_totals['refused']} refused")


@dataclass
class Attacks:
    """The attacks of one test. Those that were not refused fail it at its end, all of them."""

    refused: int = 0
    succeeded: list[str] = field(default_factory=list)

    def expect(self, what: str, *, refused: bool, instead: object = "") -> None:
        """Notes one attack and whether it was refused."""
        if refused:
            self.refused += 1
        else:
            self.succeeded.append(f"{what}: {instead or 'not refused'}")

    def call(self, what: str, work: Callable[[], Any], *codes: ErrorCode) -> None:
        """Does this; only an error with one of these codes is a refusal."""
        try:
            answer: object = work()
        except TobanError as error:
            self.expect(what, refused=error.code in codes, instead=f"{error.code}: {error.message}")
        except grpc.RpcError as error:
            self.expect(
                what, refused=(found := from_rpc_error(error)).code in codes, instead=f"{found.code}: {found.message}"
            )
        else:
            self.expect(what, refused=False, instead=repr(answer)[:200])


@pytest.fixture
def attacks() -> Iterator[Attacks]:
    made = Attacks()
    yield made
    _totals["attacks"] += made.refused + len(made.succeeded)
    _totals["refused"] += made.refused
    assert made.refused or made.succeeded, "the test has attacked nothing"
    assert not made.succeeded, "\n".join(made.succeeded)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("attack") / "home"
    with (
        running_stack(home, coordinators=1, executors=1, admin_webs=1, signers=1, slots=4) as made,
        admin_of(made) as admin,
    ):
        for identity in (GROUP, WORKER):
            certs.issue(made.home.tls / "ca", identity, made.home.tls / certs.folder_of(identity))
        names = (f"spiffe://{certs.TRUST_DOMAIN}/{SHARED}",)
        forged_certificates.forge(
            made.home.tls, made.home.tls / "shared-all", names, [f"coordinator.{certs.TRUST_DOMAIN}"]
        )
        request = pb.SetExecutorGroupRequest(name="pci", labels={"pool": "pci"}, create=True)
        admin.call(rpc.OperationsStub, "SetExecutorGroup", request)
        yield made


@pytest.fixture
def admin(stack: Stack) -> Iterator[AdminClient]:
    with admin_of(stack) as made:
        yield made


@pytest.fixture(scope="session")
def servers(stack: Stack) -> dict[str, str]:
    """Service → address of a process of it."""
    found = {one.role: one.address for one in stack.processes().values()}
    return {role: found[role] for role in ("coordinator", "executor", "log-archiver", "signer")}


@pytest.fixture
def channel(stack: Stack, servers: dict[str, str]) -> Iterator[Callable[..., grpc.Channel]]:
    """`channel(server, folder)`: a channel with the certificate in this folder of the stack's, or in any folder."""
    with contextlib.ExitStack() as opened:
        made: dict[tuple[str, str], grpc.Channel] = {}

        def open_one(server: str, folder: str | Path, **files: Any) -> grpc.Channel:
            key = server, str(folder)
            if key not in made:
                tls = TlsFiles(stack.home.tls / folder, **files)
                made[key] = opened.enter_context(open_sync_channel(servers[server], server, tls, certs.TRUST_DOMAIN))
            return made[key]

        yield open_one


@pytest.fixture
def mark() -> Iterator[str]:
    """A word that is in the command line of each process of the job, and of no other."""
    with new_mark() as made:
        yield made


@pytest.fixture(scope="session")
def isolated_stack() -> Iterator[Stack]:
    with isolating_stack(coordinators=1, executors=2, admin_webs=1, slots=4) as made:
        yield made


@pytest.fixture
def isolated(isolated_stack: Stack) -> Iterator[AdminClient]:
    """A client of the stack with class `isolated`."""
    with admin_of(isolated_stack) as made:
        yield made


@pytest.fixture
def hostile(attacks: Attacks, isolated: AdminClient) -> Callable[..., int]:
    """`hostile(kind, knowledge)`: runs the job of this kind, notes its attempts, and returns its uid."""
    return lambda kind, knowledge: note(attacks, isolated, start_hostile(isolated, kind, knowledge))
