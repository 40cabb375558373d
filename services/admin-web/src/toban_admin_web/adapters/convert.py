"""Protobuf messages to view models: each field of a view model is read from the message's field of the same name.

Unset times, optional numbers and messages become None, repeated fields tuples. A test checks every view model against its message.
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

T = TypeVar("T")


def from_proto(view_model: type[T], message: Message) -> T:
    """A `view_model` with the values of a message. Raises AttributeError for a field that the message lacks."""
    return view_model(**{name: _value(hint, message, name) for name, hint in _fields(cast(Any, view_model))})


@cache
def _fields(view_model: Any) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(view_model)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(view_model))


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
    return from_proto(cast(type[Any], hint), value) if dataclasses.is_dataclass(hint) else value
