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

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, running_stack

pytestmark = pytest.mark.e2e
DOCUMENT = Path(__file__).parents[2] / "docs" / "hooks.md"
STANDARD, GITHUB, SIGNED_CLOUDEVENT, CLOUDEVENT = re.findall(
    r"```bash\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL
)


def run_example(example: str, **variables: str) -> dict[str, Any]:
    """What the site answers to an example of the document."""
    given = {**os.environ, **variables}
    script = example.replace("secret=whsec_...", "").replace("id=order-7", "id=${id:-order-7}")
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, env=given, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def triggered(admin: AdminClient, toban: Callable[..., str]) -> Iterator[None]:
    """A job and its trigger, which does not act after the test."""
    step = {"steps": [{"argv": ["/bin/true"]}]}
    of_event = {"event_type": "order.paid", "job": "hooked"}
    admin.apply(
        {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "hooked"}, "spec": step},
        {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "hooked"}, "spec": of_event},
    )
    yield
    toban("trigger", "delete", "hooked")


def hook(toban: Callable[..., str], *words: str) -> str:
    """The secret of a new hook."""
    return toban("hook", "set", *words, "-o", "name").strip()


def runs(admin: AdminClient) -> list[Any]:
    return list(admin.runs(job="hooked"))


def test_signed_messages_start_runs(
    stack: Stack, admin: AdminClient, toban: Callable[..., str], triggered: None
) -> None:
    [site] = (f"http://{address}" for address in stack.sites)
    secret = hook(toban, "shop", "--kind", "standard", "--type", "order.paid")
    first = run_example(STANDARD, SITE=site, secret=secret)
    assert first["result"] == "accepted"
    again = run_example(STANDARD, SITE=site, secret=secret)
    assert (again["result"], again["event_id"]) == ("duplicate", first["event_id"])
    refused = run_example(STANDARD, SITE=site, secret="whsec_" + "A" * 44)
    assert (refused["status"], refused["code"]) == (404, "NOT_FOUND")
    admin.until(lambda: runs(admin), of="a run of the event")
    assert [run.event_id for run in runs(admin)] == [first["event_id"]]

    body = '{"ref": "refs/heads/main"}'
    secret = hook(toban, "repo", "--kind", "github", "--event", "push=git.push")
    assert run_example(GITHUB, SITE=site, secret=secret, body=body)["event_type"] == "git.push"
    token = hook(toban, "broker", "--kind", "cloudevents-token", "--event", "order.paid")
    assert run_example(CLOUDEVENT, SITE=site, token=token)["event_type"] == "order.paid"
    secret = hook(toban, "signed", "--kind", "cloudevents", "--event", "order.paid")
    assert run_example(SIGNED_CLOUDEVENT, SITE=site, secret=secret)["event_type"] == "order.paid"
    binary = CLOUDEVENT.replace("hooks/broker", "hooks/signed")
    assert run_example(binary, SITE=site, token=token)["status"] == 404, "a token is no signature"
    listed = json.loads(toban("hook", "list", "-o", "json"))
    assert [one["name"] for one in listed] == ["broker", "repo", "shop", "signed"]


@pytest.mark.long
class TestReplicas:
    @pytest.fixture
    def stack(self, tmp_path: Path) -> Iterator[Stack]:
        """Two sites."""
        with running_stack(tmp_path / "home", executors=1, admin_webs=2) as made:
            yield made

    def test_any_replica_takes_a_message_once_while_the_leader_dies(
        self, stack: Stack, admin: AdminClient, toban: Callable[..., str], triggered: None
    ) -> None:
        one, other = (f"http://{address}" for address in stack.sites)
        secret = hook(toban, "shop", "--kind", "standard", "--type", "order.paid")
        first = run_example(STANDARD, SITE=one, secret=secret)
        again = run_example(STANDARD, SITE=other, secret=secret)
        assert (again["result"], again["event_id"]) == ("duplicate", first["event_id"])
        # The event is committed; who led then is gone before the next one is read.
        second = run_example(STANDARD, SITE=one, secret=secret, id="order-8")
        stack.kill(leader_name(stack, admin), signal.SIGKILL)
        admin.until(lambda: len(runs(admin)) == 2, of="a run of each event")
        assert {run.event_id for run in runs(admin)} == {first["event_id"], second["event_id"]}
        again = run_example(STANDARD, SITE=other, secret=secret, id="order-8")
        assert (again["result"], again["event_id"]) == ("duplicate", second["event_id"])
