"""A stack with executors of class `isolated`, and runs of the hostile job (hostile_job.py) on it."""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from google.protobuf.message import Message

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_proto.v1.common_pb2 import AttemptKey, LogTicket
from toban_stack import certs
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.coordinator_calls import registration
from toban_testing.forged_certificates import forge
from toban_testing.stack_fixtures import admin_of, running_stack
from toban_testing.starter import end_with_this_process

HOSTILE = Path(__file__).with_name("hostile_job.py").read_text()


class Notes(Protocol):
    """Where attacks are noted."""

    def expect(self, what: str, *, refused: bool, instead: object = "") -> None:
        """One attack, and whether it was refused."""


@contextlib.contextmanager
def isolating_stack(**parts: Any) -> Iterator[Stack]:
    """A stack with executors of class `isolated`; only where an ordinary user runs the tests there is none.

    Its folder is not below /tmp, which a job does not see at all, and folders on the way to its files are open: what protects a file is its own mode
    or that of its folder. `public`, beside its home, is a folder that every user may write to.
    """
    if os.geteuid() != 0:
        pytest.skip("class isolated needs root")
    with tempfile.TemporaryDirectory(prefix="toban-attack-", dir="/var/lib") as made:
        folder = Path(made)
        end_with_this_process(folder, remove=True)
        folder.chmod(0o755)
        (folder / "public").mkdir()
        (folder / "public").chmod(0o1777)
        home, environment = folder / "home", {"SCHEDULER_ISOLATION": "isolated"}
        with running_stack(home, environment=environment, **parts) as stack, admin_of(stack) as admin:
            for one in admin.cluster().executors:
                # A weaker class is no reason to leave these tests out.
                assert one.isolation == "isolated" and "own processes, mounts and IPC" in one.isolation_details, one
            for passed in (home, home / "data"):
                passed.chmod(0o711)
            yield stack


def start_hostile(admin: AdminClient, kind: str, knowledge: Any, **spec: Any) -> int:
    """Starts the hostile job of this kind (hostile_job.py)."""
    argv = [sys.executable, "-I", "-c", HOSTILE, kind, json.dumps(knowledge)]
    body = {"steps": [{"argv": argv}], "allow_shell": True, "retry": {"max_attempts": 1}, **spec}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": f"hostile-{kind}"}, "spec": body})
    [run_id] = admin.start(f"hostile-{kind}")
    return run_id


def note(attacks: Notes, admin: AdminClient, run_id: int) -> int:
    """Notes what became of each attempt of a hostile job, all of which it must have made; returns its uid."""
    ended = admin.until_ended(run_id)

    def whole() -> list[Any]:
        lines = admin.log(run_id)
        return [json.loads(line) for line in lines] if lines[-1:] == ['"end"'] else []

    try:
        first, *tried, _ = admin.until(whole, seconds=20, of="the output of the job")
    except (TimeoutError, ValueError):
        raise AssertionError(f"{ended.state}: {admin.log(run_id)[-30:]}") from None
    for one in tried:
        attacks.expect(one["what"], refused=one["refused"], instead=one["how"])
    return int(first["uid"])


def forged_calls(stack: Stack, admin: AdminClient, victims: Sequence[pb.Run], folder: Path) -> dict[str, Any]:
    """What a job needs that would register as the executor of these runs, report their end, end and read their logs.

    `folder` is for its certificate.
    """
    executors = admin.cluster().executors
    own = forge(stack.home.tls, folder, [f"spiffe://{certs.TRUST_DOMAIN}/executor"], [], own_ca=True)
    gateway = pb.DESCRIPTOR.services_by_name["ExecutorGateway"].full_name
    ingest = logs_pb2.DESCRIPTOR.services_by_name["LogIngest"].full_name
    reader, logs = pb.DESCRIPTOR.services_by_name["JobReader"], logs_pb2.DESCRIPTOR.services_by_name["LogReader"]
    methods: dict[str, dict[str, Message]] = {"coordinator": {}, "log-archiver": {}}
    for run in victims:
        victim = next(one for one in executors if one.worker_id == run.worker_id)
        names = {"instance": victim.instance, "node_id": victim.node_id, "previous_incarnation": victim.incarnation}
        ended = pb.AttemptReport(key=AttemptKey(run_id=run.id, token=run.token))
        seal = logs_pb2.Seal(run_id=run.id, token=run.token, last_seq=0)
        methods["coordinator"] |= {
            f"/{gateway}/Register": registration(**names),
            f"/{gateway}/Report": pb.ReportRequest(incarnation=victim.incarnation, reports=[ended]),
            f"/{gateway}/Heartbeat": pb.HeartbeatRequest(incarnation=victim.incarnation),
            f"/{reader.full_name}/GetRun": pb.GetRunRequest(id=run.id),
            f"/{reader.full_name}/GetReadTicket": pb.GetReadTicketRequest(run_ids=[run.id]),
        }
        methods["log-archiver"] |= {
            f"/{ingest}/Append": logs_pb2.AppendRequest(request_id=1, tickets=[LogTicket()], seals=[seal]),
            f"/{logs.full_name}/Read": logs_pb2.ReadLogRequest(run_id=run.id),
        }
    return {
        "servers": {one.role: one.address for one in stack.processes().values() if one.role in methods},
        "methods": {
            server: {method: request.SerializeToString().hex() for method, request in asked.items()}
            for server, asked in methods.items()
        },
        "ca": (stack.home.tls / "ca" / "ca.crt").read_text(),
        "own_key": (own / "tls.key").read_text(),
        "own_certificate": (own / "tls.crt").read_text(),
    }
