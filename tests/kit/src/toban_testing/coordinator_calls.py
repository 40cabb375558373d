"""What tests ask of a running coordinator: its admin port, and the registration of an executor."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.ids import IdSource
from toban_testing.admin_port import TOKEN

_IDS = IdSource()


async def health(ports: Mapping[str, int], path: str = "/healthz") -> Any:
    """What the admin port answers: the document of /healthz, the text of any other path."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ports["admin_port"])
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    return json.loads(body) if path == "/healthz" else body.decode()


def registration(**changes: Any) -> pb.RegisterRequest:
    """The registration of a new incarnation, with `changes`."""
    fields = {
        "incarnation": _IDS.uuid(),
        "instance": "x1",
        "node_id": "n1",
        "boot_id": "b1",
        "pid": 1,
        "grpc_host": "127.0.0.1",
        "grpc_port": 4000,
        "slots": 4,
        "version": "1",
    }
    return pb.RegisterRequest(**{**fields, **changes})
