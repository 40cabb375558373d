"""Any method of the coordinators over gRPC, for one request of the site and its person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from toban_admin_web.adapters.convert import from_proto, to_proto
from toban_admin_web.decide.api_rules import SLOW_CALLS
from toban_admin_web.ports.people import Credential
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import (
    coordinator_pb2,
    coordinator_pb2_grpc,
    hooks_pb2,
    hooks_pb2_grpc,
    joining_pb2,
    joining_pb2_grpc,
    webhooks_pb2,
    webhooks_pb2_grpc,
)
from toban_runtime.clock import Clock
from toban_transport.person_rules import ADDRESS, CREDENTIAL
from toban_transport.replica_client import Fleet, Stub

# A coordinator that does not respond to a read within this time is skipped for another one, seconds.
ATTEMPT_SECONDS = 1.5

# Each service with the module of its stub.
_SERVICES = {
    name: (described, stubs)
    for messages, stubs in (
        (coordinator_pb2, coordinator_pb2_grpc),
        (hooks_pb2, hooks_pb2_grpc),
        (joining_pb2, joining_pb2_grpc),
        (webhooks_pb2, webhooks_pb2_grpc),
    )
    for name, described in messages.DESCRIPTOR.services_by_name.items()
}

A = TypeVar("A")


class ApiClient:
    """Calls the coordinators. All reads of one instance share `read_seconds`; `write_seconds` is the time limit of one call."""

    def __init__(
        self, *, coordinators: Fleet, clock: Clock, credential: Credential, read_seconds: float, write_seconds: float
    ) -> None:
        self._coordinators = coordinators
        self._clock = clock
        self._metadata = ((CREDENTIAL, credential.secret), (ADDRESS, credential.address))
        self._left = read_seconds
        self._write_seconds = write_seconds

    def read(self, method: str, answer: type[A], fields: Mapping[str, Any]) -> A:
        """As Caller.read."""
        if method in SLOW_CALLS:
            return self._call(method, answer, fields, timeout=SLOW_CALLS[method])
        if self._left <= 0:
            fleet = self._coordinators
            raise TobanError(
                ErrorCode.DEADLINE_EXCEEDED,
                "the coordinators took too long for this request",
                detail={"service": fleet.service, "addresses": list(fleet.addresses)},
            )
        began, attempt = self._clock.monotonic(), min(self._left, ATTEMPT_SECONDS)
        try:
            return self._call(method, answer, fields, timeout=self._left, attempt_seconds=attempt)
        finally:
            self._left -= self._clock.monotonic() - began

    def write(self, method: str, answer: type[A], fields: Mapping[str, Any]) -> A:
        """As Caller.write."""
        return self._call(method, answer, fields, timeout=SLOW_CALLS.get(method, self._write_seconds))

    def watch(self, method: str, answer: type[A], fields: Mapping[str, Any], *, seconds: float) -> Iterator[A]:
        """As Caller.watch."""
        stub, request = _prepared(method, fields)
        for response in self._coordinators.stream(stub, request, timeout=seconds, metadata=self._metadata):
            yield from_proto(answer, response)

    def _call(self, method: str, answer: type[A], fields: Mapping[str, Any], **limits: float) -> A:
        stub, request = _prepared(method, fields)
        return from_proto(answer, self._coordinators.call(stub, request, metadata=self._metadata, **limits))


def _prepared(method: str, fields: Mapping[str, Any]) -> tuple[Stub, Message]:
    """The stub of a method such as JobReader.GetJob, and its request."""
    service, _, name = method.partition(".")
    described, stubs = _SERVICES[service]
    request = to_proto(GetMessageClass(described.methods_by_name[name].input_type), fields)
    return lambda channel: getattr(getattr(stubs, f"{service}Stub")(channel), name), request
