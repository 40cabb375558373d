"""Target of real services: every method of every service of a stack, with messages that are filled at random, by a certificate that may call it.

A refusal has a code of ours; INTERNAL, UNKNOWN, and a service that ends or burns CPU time fail.
"""

import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from mutations import LEAVES, changed_bytes

from toban_stack.stack import Stack
from toban_transport.authz import ADMIN_CLI, METHOD_RULES
from toban_transport.channel import open_sync_channel
from toban_transport.tls import TlsFiles

SERVER_OF = {
    "WorkerService": "executor",
    "LogIngest": "log-archiver",
    "LogReader": "log-archiver",
    "LogArchive": "log-archiver",
}
"""Service of the proto → who serves it; a coordinator the others."""
LEFT_OUT = frozenset({"DemoteLeader", "AdoptEpoch", "RunArchive"})
"""They are carried out whatever the message holds, and end what the other cases need."""
HASHES = frozenset({"Authenticate", "AddUser", "UpdateUser", "ChangeOwnPassword", "RedeemBootstrapLink"})
"""They hash a password (Argon2id), which is slow on purpose and limited in how many run at once."""
CPU_SECONDS, HASH_SECONDS = 0.1, 1.0
BAD = frozenset(
    {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.DATA_LOSS}
)
SECONDS = 3.0
STREAM_SECONDS = 0.2
_TEXTS = (
    *(leaf for leaf in LEAVES if isinstance(leaf, str) and leaf.isprintable()),
    "hello",
    "x",
    "default",
    "1",
    "2026-03-29T00:00:00Z",
)
_NUMBERS = (0, 1, 2, -1, 7, 500, 2**31 - 1, -(2**31))


class CallFailed(AssertionError):
    """A call that no service may answer so."""


def methods() -> list[MethodDescriptor]:
    """All of our services'."""
    files = [
        import_module(f"toban_proto.v1.{file.stem}")
        for file in sorted(Path(import_module("toban_proto.v1").__path__[0]).glob("*_pb2.py"))
    ]
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods if method.name not in LEFT_OUT]


class Calls:
    """Calls to a running stack; `case` makes one."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._methods = methods()
        self._channels: dict[tuple[str, str], grpc.Channel] = {}
        self._last = ""
        self._addresses = {
            "coordinator": stack.coordinators[0],
            "log-archiver": stack.log_archivers[0],
            "executor": next(
                record.address for name, record in stack.processes().items() if name.startswith("executor")
            ),
        }

    def case(self, rng: random.Random) -> bool:
        """One call."""
        method = rng.choice(self._methods)
        self._last = path = f"/{method.containing_service.full_name}/{method.name}"
        server = SERVER_OF.get(method.containing_service.name, "coordinator")
        channel = self._channel(server, _caller(path))
        data = filled(rng, method.input_type).SerializeToString()
        if rng.random() < 0.3:
            data = changed_bytes(rng, [data], most=65_536)
        answer = GetMessageClass(method.output_type)
        seconds = STREAM_SECONDS if method.server_streaming or method.client_streaming else SECONDS
        try:
            if method.client_streaming:
                for _ in channel.stream_stream(path, response_deserializer=answer.FromString)(
                    _once(data), timeout=seconds
                ):
                    pass
            elif method.server_streaming:
                for _ in channel.unary_stream(path, response_deserializer=answer.FromString)(data, timeout=seconds):
                    pass
            else:
                channel.unary_unary(path, response_deserializer=answer.FromString)(data, timeout=seconds)
        except grpc.RpcError as error:
            if error.code() in BAD or (
                error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and seconds == SECONDS and "Claim" not in path
            ):
                raise CallFailed(f"{path}: {error.code().name} {error.details()}; message {data.hex()}") from None
            return False
        return True

    def limit(self) -> tuple[float, str]:
        """CPU seconds that the last call may take, and its method."""
        return HASH_SECONDS if self._last.rpartition("/")[2] in HASHES else CPU_SECONDS, self._last

    def close(self) -> None:
        """Close the channels."""
        for channel in self._channels.values():
            channel.close()

    def _channel(self, server: str, caller: str) -> grpc.Channel:
        key = server, caller
        if key not in self._channels:
            tls = TlsFiles(self._stack.home.tls / caller)
            self._channels[key] = open_sync_channel(self._addresses[server], server, tls, "toban.internal")
        return self._channels[key]


def _caller(path: str) -> str:
    callers = METHOD_RULES[path]
    return ADMIN_CLI if ADMIN_CLI in callers else sorted(callers)[0]


def _once(data: bytes) -> Iterator[bytes]:
    yield data


def filled(rng: random.Random, described: Any, depth: int = 0) -> Any:
    """A message of this type with some of its fields set."""
    message = GetMessageClass(described)()
    for field in described.fields:
        if rng.random() < 0.45 or depth > 3:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
            values = field.message_type.fields_by_name["value"]
            if values.type == FieldDescriptor.TYPE_STRING:
                getattr(message, field.name)[rng.choice(_TEXTS)] = rng.choice(_TEXTS)
            continue
        count = rng.choice((1, 2, 40)) if field.is_repeated else 1
        for _ in range(count if depth < 2 else 1):
            _set(rng, message, field, depth)
    return message


def _set(rng: random.Random, message: Any, field: FieldDescriptor, depth: int) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        inner = filled(rng, field.message_type, depth + 1)
        if field.is_repeated:
            getattr(message, field.name).append(inner)
        else:
            getattr(message, field.name).CopyFrom(inner)
        return
    value = _scalar(rng, field)
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def _scalar(rng: random.Random, field: FieldDescriptor) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return (
                rng.randbytes(rng.choice((0, 1, 40)))
                if field.type == FieldDescriptor.TYPE_BYTES
                else rng.choice(_TEXTS)
            )
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return rng.choice((0.0, 1.5, -1.0, 1e300, float("nan"), float("inf")))
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice([value.number for value in field.enum_type.values])
        case FieldDescriptor.CPPTYPE_INT64:
            return rng.choice((*_NUMBERS, 2**63 - 1, -(2**63), 1 << 45))
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return rng.choice((0, 1, 2**32 - 1))
    return rng.choice(_NUMBERS)
