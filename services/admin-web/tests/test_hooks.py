"""POST /hooks/NAME: what reaches the coordinators, and what is refused before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toban_admin_web.views.hooks import MAX_BODY_BYTES
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_proto.v1 import hooks_pb2 as pb
from toban_proto.v1 import hooks_pb2_grpc as rpc

BODY = b'{"a":  "\xc3\xa9"}\n'


class Receiver(rpc.HookReceiverServicer):
    """Records messages and gives `answer`: a message or an exception."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.answer: Any = pb.ReceiveHookResponse(result="accepted", event_id=7, event_type="order.paid")
        self.services = [(rpc.add_HookReceiverServicer_to_server, self)]

    def prepare(self, cluster: Any) -> None:
        """Adds nothing to the other services."""

    async def admit(self, method: str, *, caller: Caller, about: Any, given: Mapping[str, str]) -> None:
        """No person is behind a message."""

    async def ReceiveHook(self, request: Any, context: Any) -> Any:
        self.received.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def further() -> Receiver:
    """The coordinator's side."""
    return Receiver()


@pytest.fixture
def post(web: Any) -> Any:
    """Posts as another system does: without a session and without Origin."""

    def send(body: bytes = BODY, name: str = "shop", **headers: str) -> Any:
        web.client.delete_cookie("toban-session")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.client.post(f"/hooks/{name}", data=body, headers=named)

    return send


def test_a_message_reaches_a_coordinator_as_it_came(post: Any, further: Receiver) -> None:
    given = {"Webhook_Id": "m-1", "X_GitHub_Event": "push", "ce_type": "a", "Authorization": "Bearer x"}
    response = post(content_type="application/json", Cookie="a=b", Accept="*/*", **given)
    assert (response.status_code, response.json) == (
        200,
        {"result": "accepted", "event_id": 7, "event_type": "order.paid"},
    )
    [request] = further.received
    assert (request.name, request.body, request.address) == ("shop", BODY, "127.0.0.1")
    wanted = {
        "webhook-id": "m-1",
        "x-github-event": "push",
        "ce-type": "a",
        "authorization": "Bearer x",
        "content-type": "application/json",
    }
    assert dict(request.headers) == wanted
    assert response.headers["X-Request-Id"] and response.headers["Cache-Control"] == "no-store"


def test_a_message_without_an_event(post: Any, further: Receiver) -> None:
    further.answer = pb.ReceiveHookResponse(result="ignored")
    assert post().json == {"result": "ignored", "event_id": None, "event_type": None}


def test_refusals_are_problem_documents(post: Any, further: Receiver) -> None:
    for error, status, code in (
        (TobanError(ErrorCode.NOT_FOUND, "no such hook"), 404, "NOT_FOUND"),
        (TobanError(ErrorCode.PAYLOAD_INVALID, "no JSON"), 400, "PAYLOAD_INVALID"),
        (TobanError(ErrorCode.PAYLOAD_TOO_LARGE, "32 KiB"), 413, "PAYLOAD_TOO_LARGE"),
        (
            TobanError(ErrorCode.RESOURCE_EXHAUSTED, "slow", detail={"retry_after_seconds": 9}),
            429,
            "RESOURCE_EXHAUSTED",
        ),
    ):
        further.answer = error
        response = post()
        assert (response.status_code, response.json["code"], response.content_type) == (
            status,
            code,
            "application/problem+json",
        )
        assert response.headers.get("Retry-After") == ("9" if status == 429 else None)


def test_what_never_reaches_a_coordinator(post: Any, web: Any, further: Receiver) -> None:
    response = post(b"x" * (MAX_BODY_BYTES + 1))
    assert (response.status_code, response.json["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert post(Host="evil.example").status_code == 421
    response = web.client.get("/hooks/shop")
    assert (response.status_code, response.headers["Allow"]) == (405, "OPTIONS, POST")
    assert further.received == []


def test_the_largest_body_and_a_long_name(post: Any, further: Receiver) -> None:
    assert post(b"x" * MAX_BODY_BYTES, name="x" * 500).status_code == 200
    assert len(further.received[0].body) == MAX_BODY_BYTES and len(further.received[0].name) == 80


def test_one_address_has_one_rate_for_all_hooks(new_web: Any, further: Receiver) -> None:
    client = new_web(api_rate=6).worker.app.test_client()
    assert client.post("/hooks/shop", data=BODY).status_code == 200
    response = client.post("/hooks/shop", data=BODY)
    assert response.status_code == 429 and int(response.headers["Retry-After"]) >= 1
    assert client.post("/hooks/other", data=BODY).status_code == 429
    assert client.get("/api/v1/openapi.json").status_code == 200, "and another one for REST"
    assert len(further.received) == 1


def test_one_network_of_ipv6_has_one_rate(new_web: Any, further: Receiver) -> None:
    client = new_web(api_rate=6).worker.app.test_client()
    sent = [
        client.post("/hooks/shop", data=BODY, environ_base={"REMOTE_ADDR": address}).status_code
        for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")
    ]
    assert sent == [200, 429, 200] and {one.address for one in further.received} == {"2001:db8::1", "2001:db8:0:1::1"}


def test_before_the_first_administrator_messages_are_still_checked_by_coordinators(
    post: Any, cluster: Any, further: Receiver
) -> None:
    cluster.accounts.administrator = False
    assert post().status_code == 200 and len(further.received) == 1
