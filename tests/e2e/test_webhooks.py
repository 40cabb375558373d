"""Webhooks over a whole stack: the end of a run reaches a receiver, signed, once by its id, also when the leader dies meanwhile."""

import base64
import hashlib
import hmac
import json
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, sql

pytestmark = pytest.mark.e2e


class Receiver:
    """A target that dedupes by id: `events` are those that it took, `refused` counts what it refused while `down`."""

    def __init__(self) -> None:
        self.events: dict[str, tuple[dict[str, str], bytes]] = {}
        self.down = False
        self.refused = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.down:
                    receiver.refused += 1
                else:
                    receiver.events.setdefault(self.headers["webhook-id"], (dict(self.headers), body))
                self.send_response(503 if receiver.down else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.events.values()]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def pager(toban: Callable[..., str], receiver: Receiver) -> Iterator[str]:
    """The secret of a webhook that has delivered one message, and sends nothing after the test."""
    # Of these jobs only: a run of an earlier test may end meanwhile.
    words = ["--url", "-", "--state", "all", "--job", "paged-good", "--job", "paged-bad", "-o", "name"]
    secret = toban("webhook", "set", "pager", *words, typed=receiver.url).strip()
    assert "delivered, the target responded with 204" in toban("webhook", "test", "pager")
    yield secret
    toban("webhook", "delete", "pager")
    assert "No webhooks." in toban("webhook", "list")


def job(name: str, *argv: str) -> dict[str, Any]:
    body = {"steps": [{"argv": list(argv)}], "retry": {"max_attempts": 1}}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def test_ends_of_runs_arrive_signed(
    admin: AdminClient, toban: Callable[..., str], receiver: Receiver, pager: str
) -> None:
    admin.apply(job("paged-good", "/bin/true"), job("paged-bad", "/bin/false"))
    runs = [*admin.start("paged-good"), *admin.start("paged-bad")]
    admin.until(lambda: len(receiver.events) == 3, of="the test and two ends")
    said = {document["data"]["run"]["id"]: document for document in receiver.documents()[1:]}
    assert [said[run]["type"] for run in runs] == ["run.succeeded", "run.failed"]
    assert said[runs[1]]["data"]["run"]["exit_code"] == 1
    for headers, body in receiver.events.values():
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        made = hmac.new(base64.b64decode(pager.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == f"v1,{base64.b64encode(made).decode()}"
    receiver.down = True
    assert "responded with 503" in toban("webhook", "test", "pager", code=1)
    receiver.down = False
    listed = json.loads(toban("webhook", "deliveries", "pager", "-o", "json"))
    assert len(listed) == 4
    again = toban("webhook", "redeliver", "pager", "--id", str(listed[-1]["id"]))
    assert again.startswith("pager: 1 delivery sent again")


@pytest.mark.long
def test_what_is_refused_arrives_once_although_the_leader_dies(
    stack: Stack, admin: AdminClient, receiver: Receiver, pager: str, whole_afterwards: None
) -> None:
    admin.apply(job("paged-bad", "/bin/false"))
    receiver.down = True
    more = [run for _ in range(3) for run in admin.start("paged-bad")]
    for run in more:
        admin.until_ended(run)
    admin.until(lambda: receiver.refused >= 2, of="a refused delivery")
    # The ends are committed; who committed them, and who sends, are gone.
    stack.kill(leader_name(stack, admin), signal.SIGKILL)
    receiver.down = False
    # The waits between tries are over, as an operator would have it after a repair.
    sql(stack, "UPDATE scheduler.webhook_deliveries SET next_at = now() WHERE state = 'pending' AND lease IS NULL")
    sql(stack, "UPDATE scheduler.webhook_targets SET open_until = NULL")

    def arrived() -> bool:
        found = [document["data"].get("run", {}).get("id") for document in receiver.documents()]
        assert all(found.count(run) <= 1 for run in more)
        return set(more) <= set(found)

    admin.until(arrived, seconds=90, of="every end that was committed")
