"""The messages of the services, loaded at their first use: help and completion need none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toban_proto.v1 import common_pb2 as common_pb
    from toban_proto.v1 import coordinator_pb2 as pb
    from toban_proto.v1 import hooks_pb2 as hooks_pb
    from toban_proto.v1 import joining_pb2 as joining_pb
    from toban_proto.v1 import logs_pb2 as logs_pb
    from toban_proto.v1 import webhooks_pb2 as webhooks_pb
else:

    class _Messages:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, message: str) -> Any:
            return getattr(import_module(f"toban_proto.v1.{self._name}_pb2"), message)

    common_pb, pb, hooks_pb, joining_pb, logs_pb, webhooks_pb = map(
        _Messages, ("common", "coordinator", "hooks", "joining", "logs", "webhooks")
    )

__all__ = ["common_pb", "hooks_pb", "joining_pb", "logs_pb", "pb", "webhooks_pb"]
