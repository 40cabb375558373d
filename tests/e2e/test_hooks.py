"""Incoming webhooks over a whole stack: the examples of docs/hooks.md, by any replica of the site, also when the leader dies meanwhile."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, running_stack

pytestmark = pytest.mark.e2e
DOCUMENT = Path(__file__).parents[2] / "docs" / "hooks.md"
STANDARD, GITHUB, SIGNED_CLOUDEVENT, CLOUDEVENT = re.findall(
    r"```bash\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL
)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "home", executors=1, admin_webs=2) as made:
        yield made


def run_example(example: str, **variables: str) -> dict[str, Any]:
    """What the site answers to an example of the document."""
    given = {**os.environ, **variables}
    script = example.replace("secret=whsec_...", "").replace("id=order-7", "id=${id:-order-7}")
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, env=given, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def manifests() -> list[dict[str, Any]]:
    job = {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": "hello"},
        "spec": {"steps": [{"argv": ["/bin/true"]}]},
    }
    trigger = {
        "apiVersion": "toban/v1",
        "kind": "EventTrigger",
        "metadata": {"name": "paid"},
        "spec": {"event_type": "order.paid", "job": "hello"},
    }
    return [job, trigger]


def test_signed_messages_start_runs_through_any_replica(
    stack: Stack, admin: AdminClient, toban: Callable[..., str]
) -> None:
    admin.apply(*manifests())
    one, other = (f"http://{address}" for address in stack.sites)
    secret = toban("hook", "set", "shop", "--kind", "standard", "--type", "order.paid", "-o", "name").strip()
    first = run_example(STANDARD, SITE=one, secret=secret)
    assert first["result"] == "accepted"
    again = run_example(STANDARD, SITE=other, secret=secret)
    assert (again["result"], again["event_id"]) == ("duplicate", first["event_id"])
    refused = run_example(STANDARD, SITE=other, secret="whsec_" + "A" * 44)
    assert (refused["status"], refused["code"]) == (404, "NOT_FOUND")

    # The event is committed; who led then is gone before the next one is read.
    second = run_example(STANDARD, SITE=one, secret=secret, id="order-8")
    stack.kill(leader_name(stack, admin), signal.SIGKILL)

    def runs() -> list[Any]:
        return list(admin.call(rpc.JobReaderStub, "ListRuns", pb.ListRunsRequest(job="hello")).runs)

    admin.until(lambda: len(runs()) == 2, seconds=60, of="a run of each event")
    assert {run.event_id for run in runs()} == {first["event_id"], second["event_id"]}
    again = run_example(STANDARD, SITE=other, secret=secret, id="order-8")
    assert (again["result"], again["event_id"]) == ("duplicate", second["event_id"])

    body = '{"ref": "refs/heads/main"}'
    secret = toban("hook", "set", "repo", "--kind", "github", "--event", "push=git.push", "-o", "name").strip()
    assert run_example(GITHUB, SITE=one, secret=secret, body=body)["event_type"] == "git.push"
    token = toban("hook", "set", "broker", "--kind", "cloudevents-token", "--event", "order.paid", "-o", "name").strip()
    assert run_example(CLOUDEVENT, SITE=other, token=token)["event_type"] == "order.paid"
    secret = toban("hook", "set", "signed", "--kind", "cloudevents", "--event", "order.paid", "-o", "name").strip()
    assert run_example(SIGNED_CLOUDEVENT, SITE=one, secret=secret)["event_type"] == "order.paid"
    binary = CLOUDEVENT.replace("hooks/broker", "hooks/signed")
    assert run_example(binary, SITE=one, token=token)["status"] == 404, "a token is no signature"
    listed = json.loads(toban("hook", "list", "-o", "json"))
    assert [hook["name"] for hook in listed] == ["broker", "repo", "shop", "signed"]
