"""POST /join: what reaches the coordinators, and what is refused before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_proto.v1 import joining_pb2 as pb
from toban_proto.v1 import joining_pb2_grpc as rpc
from toban_testing.site_messages import NOW
from toban_transport.convert import timestamp_to_pb

GOOD = {"token": "toban_join_1", "request": "PEM", "machine": "rack-7"}


class Gateway(rpc.JoinGatewayServicer):
    """Records requests and gives `answer`: a message or an exception."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.answer: Any = pb.JoinResponse(
            certificate_pem=b"cert",
            authorities_pem=b"ca",
            group="pci",
            trust_domain="toban.internal",
            coordinators=["c:1"],
            log_archivers=["l:1"],
            ends_at=timestamp_to_pb(NOW),
        )
        self.services = [(rpc.add_JoinGatewayServicer_to_server, self)]

    def prepare(self, cluster: Any) -> None:
        """Adds nothing to the other services."""

    async def admit(self, method: str, *, caller: Caller, about: Any, given: Mapping[str, str]) -> None:
        """No person is behind a machine."""

    async def Join(self, request: Any, context: Any) -> Any:
        self.received.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def further() -> Gateway:
    """The coordinator's side."""
    return Gateway()


@pytest.fixture
def post(web: Any) -> Any:
    """Posts as a machine does: without a session and without Origin."""

    def send(**given: Any) -> Any:
        web.client.delete_cookie("toban-session")
        return web.client.post("/join", **given)

    return send


def test_a_machine_gets_what_the_coordinator_answers(post: Any, further: Gateway) -> None:
    response = post(json=GOOD)
    assert (response.status_code, response.json) == (
        200,
        {
            "certificate": "cert",
            "authorities": "ca",
            "group": "pci",
            "trust_domain": "toban.internal",
            "coordinators": ["c:1"],
            "log_archivers": ["l:1"],
            "ends_at": NOW.isoformat(),
        },
    )
    assert response.headers["Cache-Control"] == "no-store"
    [asked] = further.received
    assert (asked.token, asked.request_pem, asked.machine, asked.address) == (
        "toban_join_1",
        b"PEM",
        "rack-7",
        "127.0.0.1",
    )


@pytest.mark.parametrize(
    "given",
    [
        {"data": b"{"},
        {"json": []},
        {"json": {**GOOD, "group": "pci"}},
        {"json": {**GOOD, "token": ""}},
        {"json": {**GOOD, "token": 7}},
        {"json": {**GOOD, "request": "x" * 20_001}},
        {"json": {"token": "a"}},
        *({"json": {**GOOD, name: f"a{wrong}b"}} for name in GOOD for wrong in ("\ud800", "\0", "\x1b")),
    ],
)
def test_what_is_wrong_reaches_no_coordinator(given: Any, post: Any, further: Gateway) -> None:
    response = post(**given)
    assert (response.status_code, response.json["code"], further.received) == (400, "INVALID_ARGUMENT", [])


def test_a_large_body_is_not_read(post: Any, further: Gateway) -> None:
    assert post(data=b" " * 33_000).status_code == 413
    assert further.received == []


@pytest.mark.parametrize(
    ("code", "status"), [(ErrorCode.UNAUTHENTICATED, 401), (ErrorCode.UNIMPLEMENTED, 501), (ErrorCode.UNAVAILABLE, 503)]
)
def test_a_refusal_is_a_problem_document_with_the_reason(
    code: ErrorCode, status: int, post: Any, further: Gateway
) -> None:
    further.answer = TobanError(code, "the token is not good; ask for another")
    response = post(json=GOOD)
    assert (response.status_code, response.json["code"]) == (status, code)
    assert "toban_join_1" not in response.text


def test_tries_are_limited_by_address(new_web: Any, further: Gateway) -> None:
    client = new_web(api_rate=6).worker.app.test_client()
    assert [client.post("/join", json=GOOD).status_code for _ in range(2)] == [200, 429]
    assert len(further.received) == 1
