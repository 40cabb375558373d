"""Steps on executors and of external workers in one run, over a whole stack; the leader dies between claim and completion."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name

pytestmark = pytest.mark.e2e
JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "mixed"},
    "spec": {
        "steps": [
            {"id": "fetch", "argv": ["echo", "fetched"]},
            {"id": "work", "type": "external", "worker_type": "render", "lock_ttl_seconds": 30},
            {"id": "publish", "argv": ["echo", "published"]},
            {"id": "tell", "argv": ["echo", "told"]},
        ]
    },
}
Work = Callable[[str, Any], Any]


@pytest.fixture(autouse=True)
def applied(admin: AdminClient) -> None:
    admin.apply(JOB)


@pytest.fixture
def work(stack: Stack) -> Iterator[Work]:
    """A call of a worker to the first coordinator that answers."""
    folder: Path = stack.home.tls / "external-worker"
    ca, key, certificate = ((folder / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    options = [("grpc.ssl_target_name_override", f"coordinator.{TRUST_DOMAIN}")]
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    channels = [grpc.secure_channel(address, credentials, options) for address in stack.coordinators]

    def call(method: str, request: Any) -> Any:
        for channel in channels:
            try:
                return getattr(rpc.ExternalWorkStub(channel), method)(request, timeout=15.0)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
        raise AssertionError("no coordinator answers")

    yield call
    for channel in channels:
        channel.close()


def claimed(work: Work) -> pb.ClaimedStep:
    request = pb.ClaimRequest(worker="w", worker_type="render", limit=1, wait_seconds=10)
    while not (steps := work("Claim", request).steps):
        pass
    [step] = steps
    return step


def complete(work: Work, step: pb.ClaimedStep, result: Any) -> str:
    done = pb.CompletedStep(key=step.key, result_json=json.dumps(result))
    return str(work("Complete", pb.CompleteRequest(worker="w", steps=[done])).answers[0].result)


def test_steps_of_both_kinds_follow_each_other(admin: AdminClient, work: Work) -> None:
    [run_id] = admin.start("mixed")
    step = claimed(work)
    run = admin.run(run_id)
    assert (run.state, run.phase, [s.state for s in run.steps]) == (
        "WAITING_WORKER",
        "work",
        ["succeeded", "running", "pending", "pending"],
    )
    assert complete(work, step, {"frames": 7}) == "accepted"
    run = admin.until_ended(run_id)
    assert (run.state, run.attempt, json.loads(run.result_json)) == ("SUCCEEDED", 1, {"frames": 7})
    assert [s.state for s in run.steps] == ["succeeded"] * 4
    assert [(a.attempt, a.state) for a in run.attempts] == [(1, "SUCCEEDED")] * 3
    admin.until(lambda: "told" in admin.log(run_id), of="the log of the last dispatch")
    assert [line for line in admin.log(run_id) if line in ("fetched", "published", "told")] == [
        "fetched",
        "published",
        "told",
    ]


@pytest.mark.long
def test_the_leader_dies_between_claim_and_completion(
    stack: Stack, admin: AdminClient, work: Work, whole_afterwards: None
) -> None:
    [run_id] = admin.start("mixed")
    step = claimed(work)
    stack.kill(leader_name(stack, admin), signal.SIGKILL)
    assert not work("Heartbeat", pb.ExternalHeartbeatRequest(worker="w", keys=[step.key])).lost
    assert complete(work, step, 1) == "accepted"
    assert complete(work, step, 1) == "already_accepted"
    run = admin.until_ended(run_id)
    assert (run.state, run.attempt, run.lost_count) == ("SUCCEEDED", 1, 0)
