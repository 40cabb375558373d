"""A coordinator that answers every method that people may call, and clients of the API with tokens of each role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from toban_domain.errors import TobanError
from toban_observability.context import Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import hooks_pb2, hooks_pb2_grpc, joining_pb2, joining_pb2_grpc, webhooks_pb2, webhooks_pb2_grpc
from toban_transport.server import metadata


def _started(request: Any) -> Any:
    return pb.StartRunsResponse(runs=[pb.StartedRun(run_id=7, created=True) for _ in request.runs])


def _applied(request: Any) -> Any:
    applied = [pb.Applied(kind="Job", name="x", action="created", version=1) for _ in request.manifests]
    return pb.ApplyResponse(applied=applied)


TOKENS = {role: f"toban_pat_{role:0>32}" for role in ("none", "viewer", "operator", "editor", "admin", "worker")}


class Further:
    """The services that the API calls beside those of the site. `answers` by method: a message, an exception or a function of the request."""

    def __init__(self) -> None:
        listed = hooks_pb2.ListHooksResponse(hooks=[hooks_pb2.Hook(name="x")])
        self.answers: dict[str, Any] = {"StartRuns": _started, "Apply": _applied, "ListHooks": listed}
        self.calls: list[tuple[str, Any, Mapping[str, str]]] = []
        self.seconds: dict[str, float] = {}
        """What the deadline of the last call of a method left."""
        self.services: list[tuple[Any, Any]] = []

    def prepare(self, cluster: Any) -> None:
        """Completes the services of the site, and makes the others."""
        cluster.accounts.sessions |= {token: f"u-{role}" for role, token in TOKENS.items()}
        cluster.accounts.bounds |= {token: {"role": role.replace("none", "")} for role, token in TOKENS.items()}
        cluster.accounts.bounds[TOKENS["worker"]] = {"role": "operator", "worker_type": "transcode"}
        control, operations = rpc.JobControlServicer(), rpc.OperationsServicer()
        work = rpc.ExternalWorkServicer()
        hooks, webhooks = hooks_pb2_grpc.HooksServicer(), webhooks_pb2_grpc.WebhooksServicer()
        invites, gateway = joining_pb2_grpc.InvitesServicer(), joining_pb2_grpc.JoinGatewayServicer()
        self.services = [
            (rpc.add_JobControlServicer_to_server, control),
            (rpc.add_OperationsServicer_to_server, operations),
            (rpc.add_ExternalWorkServicer_to_server, work),
            (hooks_pb2_grpc.add_HooksServicer_to_server, hooks),
            (webhooks_pb2_grpc.add_WebhooksServicer_to_server, webhooks),
            (joining_pb2_grpc.add_InvitesServicer_to_server, invites),
            (joining_pb2_grpc.add_JoinGatewayServicer_to_server, gateway),
        ]
        self._complete("JobReader", cluster.reader, keep=())
        self._complete("JobControl", control, keep=())
        self._complete("Operations", operations, keep=())
        self._complete("ExternalWork", work, keep=())
        self._complete("Hooks", hooks, keep=(), module=hooks_pb2)
        self._complete("Webhooks", webhooks, keep=(), module=webhooks_pb2)
        self._complete("Invites", invites, keep=(), module=joining_pb2)
        self._complete("JoinGateway", gateway, keep=(), module=joining_pb2)
        keep = (
            "Authenticate",
            "SignOut",
            "GetAccountsState",
            "RedeemBootstrapLink",
            "StartOidcSignIn",
            "SignInWithOidc",
        )
        self._complete("Accounts", cluster.accounts, keep=keep)

    def _complete(self, service: str, servicer: Any, *, keep: tuple[str, ...], module: Any = pb) -> None:
        for described in module.DESCRIPTOR.services_by_name[service].methods:
            if described.name in keep:
                continue
            make = self._stream if described.server_streaming else self._method
            setattr(servicer, described.name, make(described.name, GetMessageClass(described.output_type)))

    def _method(self, name: str, kind: type) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            self.calls.append((name, request, metadata(context)))
            self.seconds[name] = context.time_remaining()
            found = self.answers.get(name, kind())
            if isinstance(found, Exception):
                raise found
            return found(request) if callable(found) else found

        return answer

    def _stream(self, name: str, kind: type) -> Any:
        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            self.calls.append((name, request, metadata(context)))
            for found in self.answers.get(name, [kind()]):
                if isinstance(found, Exception):
                    raise found
                yield found

        return answers

    async def admit(self, method: str, *, caller: Caller, about: Any, given: Mapping[str, str]) -> None:
        """Everybody: the rights are the matter of the coordinator's own tests."""

    @property
    def last(self) -> Any:
        """The request of the last call."""
        return self.calls[-1][1]


@dataclass
class Api:
    """A client of the API. Its token is that of an administrator unless another role is named."""

    web: Any
    further: Further

    def __post_init__(self) -> None:
        self.web.client.delete_cookie("toban-session")

    def ask(self, method: str, path: str, body: Any = None, *, role: str = "admin", **headers: str) -> Any:
        """A response; header names are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Authorization": f"Bearer {TOKENS[role]}"} if role else {}
        given = {} if body is None else {"data" if isinstance(body, bytes) else "json": body}
        return self.web.client.open(f"/api/v1{path}", method=method, headers=named, **given)

    def get(self, path: str, **given: Any) -> Any:
        return self.ask("GET", path, **given)

    def post(self, path: str, body: Any = None, **given: Any) -> Any:
        return self.ask("POST", path, body, **given)

    def put(self, path: str, body: Any = None, **given: Any) -> Any:
        return self.ask("PUT", path, body, **given)

    def refuse(self, method: str, error: TobanError) -> None:
        self.further.answers[method] = error


@pytest.fixture
def further() -> Further:
    """What else the coordinator serves."""
    return Further()


@pytest.fixture
def api(web: Any, further: Further) -> Api:
    """A client of the API over a cluster that answers everything."""
    return Api(web, further)
