"""Messages to records: each field of a record is the field of its name in the message.

Unset times and optional numbers become None, an unset message None, repeated fields tuples. A test holds every record against its message.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from functools import cache
from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from toban_transport.convert import timestamp_from_pb

R = TypeVar("R")


def record(kind: type[R], message: Message) -> R:
    """The record of `kind` out of a message. Raises AttributeError when the message lacks one of its fields."""
    return kind(**{name: _value(hint, message, name) for name, hint in _fields(cast(Any, kind))})


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind))


def _value(hint: Any, message: Message, name: str) -> Any:
    value = getattr(message, name)
    if isinstance(value, Timestamp):
        return timestamp_from_pb(value)
    origin = typing.get_origin(hint)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_item(inner, item) for item in value)
    if origin is collections.abc.Mapping:
        return dict(value)
    if origin in (typing.Union, types.UnionType):
        inner = next(one for one in typing.get_args(hint) if one is not type(None))
        if not message.HasField(name):
            return None
        return _item(inner, value)
    return value


def _item(hint: Any, value: Any) -> Any:
    return record(cast(type[Any], hint), value) if dataclasses.is_dataclass(hint) else value
