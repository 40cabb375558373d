"""REST over a whole stack: every command of docs/rest.md works, in its order, and a revoked token is good no more."""

import json
import re
import shlex
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.accounts import add_token, add_user, user_token
from toban_testing.admin_client import AdminClient
from toban_testing.documents import steps

pytestmark = pytest.mark.e2e

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "rest.md"
STEPS = steps(DOCUMENT.read_text(encoding="utf-8"))
COMMANDS = [step.command for step in STEPS if not step.command.startswith(("export ", "alias "))]
SECONDS = 60.0


class Curl:
    """Does what the commands of the document do with curl."""

    def __init__(self, address: str, token: str) -> None:
        self.base = f"http://{address}/api/v1"
        self.token = token

    def run(self, command: str) -> tuple[int, str]:
        """Status and body."""
        words = shlex.split(command.replace("$TOBAN_URL", self.base))[1:]
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        verb, url, data = "GET", "", None
        while words:
            word = words.pop(0)
            if word == "-X":
                verb = words.pop(0)
            elif word == "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            elif word == "-d":
                data = words.pop(0).encode()
            else:
                url = word
        request = urllib.request.Request(url, data=data, headers=headers, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and answer."""
        status, text = self.run(f"api -X POST $TOBAN_URL{path} -d {shlex.quote(json.dumps(body))}")
        return status, json.loads(text)

    def get(self, path: str) -> Any:
        status, text = self.run(f"api $TOBAN_URL{path}")
        assert status == 200, text
        return json.loads(text)


def is_done(curl: Curl, run_id: int) -> bool:
    return bool(curl.get(f"/runs/{run_id}")["state"] == "SUCCEEDED")


@pytest.fixture
def as_before(toban: Callable[..., str]) -> Iterator[None]:
    """What the document leaves behind and acts by itself is removed."""
    yield
    toban("settings", "set", "max_chain_depth", "default")
    toban("schedule", "delete", "rest-demo-hourly")


@pytest.mark.seed(126)
def test_the_commands_of_the_document(stack: Stack, admin: AdminClient, as_before: None) -> None:
    assert len(COMMANDS) >= 10
    add_user(admin, "robot", "admin")
    made = add_token(admin, "robot", "admin")
    curl = Curl(stack.sites[0], made.secret)
    run_id, statuses = 0, []
    for command in COMMANDS:
        status, text = curl.run(re.sub(r"/runs/1\b", f"/runs/{run_id}", command))
        statuses.append(status)
        assert status in (200, 201), (command, text)
        if command.endswith("'{}'"):
            run_id = json.loads(text)["run_id"]
            again = curl.run(command)
            assert again[0] == 200 and json.loads(again[1]) == {"run_id": run_id, "created": False}
            done = partial(is_done, curl, run_id)
            assert wait_until(done, 30)
    assert statuses.count(201) >= 3

    audit = curl.get("/audit?limit=1")["entries"][0]
    assert (audit["actor"], audit["target"]) == (f"user robot, token {made.id}", "setting max_chain_depth")
    stale = "api -X PUT $TOBAN_URL/settings/max_chain_depth -H 'If-Match: \"0\"' -d '{\"value\": 31}'"
    assert curl.run(stale)[0] == 412
    spec = '{"spec": {"steps": [{"argv": ["/bin/echo", "hello"]}], "timeout_seconds": 60}}'
    put = f"api -X PUT $TOBAN_URL/jobs/rest-demo -d '{spec}'"
    assert curl.run(f"{put} -H 'If-None-Match: *'")[0] == 412
    assert curl.run(f"{put} -H 'If-Match: \"7\"'")[0] == 412
    status, text = curl.run(f"{put} -H 'If-Match: \"1\"'")
    assert (status, json.loads(text)["action"]) == (200, "unchanged")

    viewer = Curl(stack.sites[0], add_token(admin, "robot", "viewer", name="v").secret)
    assert viewer.get("/session")["role"] == "viewer" and viewer.get("/jobs")["jobs"]
    for refused in ("POST $TOBAN_URL/jobs/hello/runs", "DELETE $TOBAN_URL/jobs/hello", "GET $TOBAN_URL/audit"):
        assert viewer.run(f"api -X {refused}")[0] == 403
    admin.call(rpc.AccountsStub, "RevokeToken", pb.RevokeTokenRequest(id=made.id))
    assert wait_until(lambda: curl.run("api $TOBAN_URL/session")[0] == 401, 60)


def test_an_external_worker_without_grpc(stack: Stack, admin: AdminClient) -> None:
    """Two runs: one is completed, and the other fails for good. Its claim waits in a long poll until they are started."""
    steps = [{"id": "transcode", "type": "external", "worker_type": "transcode", "lock_ttl_seconds": 30}]
    spec = {"steps": steps, "timeout_seconds": 60, "retry": {"max_attempts": 3}}
    job = {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "video"}, "spec": spec}
    admin.apply(job)
    curl = Curl(stack.sites[0], user_token(admin, "transcoder", "operator"))
    wanted = {"worker": "gpu:1", "worker_type": "transcode", "limit": 1, "wait_seconds": 20}
    # The poll may begin before or after the start of the run: it gets the step in both cases.
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(curl.post, "/external-work/claims", wanted)
        assert curl.post("/jobs/video/runs", {"payload": {"in": "a.mov"}})[0] == 201
        status, found = poll.result(SECONDS)
    assert status == 200 and [step["payload"] for step in found["steps"]] == [{"in": "a.mov"}]
    key = found["steps"][0]["key"]
    mine = {"worker": "gpu:1", "key": key}
    assert curl.post("/external-work/heartbeats", {"worker": "gpu:1", "keys": [key]}) == (
        200,
        {"lost": [], "cancel": []},
    )
    assert curl.post("/external-work/heartbeats", {"worker": "gpu:2", "keys": [key]})[1]["lost"] == [key]
    assert curl.post("/external-work/progress", {**mine, "percentage": 40})[1] == {"cancel_requested": False}
    done = {"worker": "gpu:1", "steps": [{"key": key, "result": {"out": "a.mp4"}}]}
    assert [curl.post("/external-work/complete", done)[1]["answers"][0]["result"] for _ in range(2)] == [
        "accepted",
        "already_accepted",
    ]
    run = curl.get(f"/runs/{key['run_id']}")
    assert (run["state"], run["result"]) == ("SUCCEEDED", {"out": "a.mp4"})
    status, lost = curl.post("/external-work/fail", mine)
    assert (status, lost["code"]) == (409, "CLAIM_LOST")

    assert curl.post("/jobs/video/runs", {})[0] == 201
    key = curl.post("/external-work/claims", wanted)[1]["steps"][0]["key"]
    failed = {"worker": "gpu:1", "key": key, "error": "no codec", "retryable": False}
    assert curl.post("/external-work/fail", failed) == (200, {"result": "accepted"})
    assert curl.get(f"/runs/{key['run_id']}")["state"] == "FAILED"

    viewer = Curl(stack.sites[0], add_token(admin, "transcoder", "viewer", name="v").secret)
    assert viewer.post("/external-work/claims", wanted)[0] == 403
