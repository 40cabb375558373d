"""Protobuf messages to view models and answers of the API, and requests of the API to messages, by the names of their fields.

Unset times, optional numbers and messages become None, repeated fields tuples. A field of an answer with type Any is read from the JSON
in the message's field with `_json` behind its name. A test checks every model against its message.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import MAX_NESTING, deeper_than
from toban_transport.convert import timestamp_from_pb, timestamp_to_pb

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def from_proto(view_model: type[T], message: Message) -> T:
    """A `view_model` with the values of a message. Raises AttributeError for a field that the message lacks."""
    return view_model(**{name: _value(hint, message, name) for name, hint in _fields(cast(Any, view_model))})


def to_proto(kind: type[M], fields: Mapping[str, Any]) -> M:
    """A message with these values; None leaves a field out. Raises INVALID_ARGUMENT for a value that its field cannot hold."""
    message = kind()
    for name, value in fields.items():
        if value is None:
            continue
        try:
            _put(message, name, value)
        except (ValueError, TypeError) as error:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name}: {error}; give another value") from None
    return message


def _put(message: Message, name: str, value: Any) -> None:
    if name not in message.DESCRIPTOR.fields_by_name:
        setattr(message, f"{name}_json", json.dumps(value, ensure_ascii=False))
        return
    field = getattr(message, name)
    if isinstance(field, Timestamp):
        field.CopyFrom(cast(Timestamp, timestamp_to_pb(value)))
    elif isinstance(field, Message):
        field.CopyFrom(to_proto(type(field), value))
        field.SetInParent()
    elif isinstance(value, Mapping):
        field.update(value)
    elif isinstance(value, list | tuple):
        for one in value:
            if isinstance(one, Mapping):
                added = field.add()
                added.CopyFrom(to_proto(type(added), one))
            else:
                field.append(one)
    else:
        setattr(message, name, value)


@cache
def _fields(view_model: Any) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(view_model)
    if issubclass(view_model, BaseModel):
        return tuple((name, hints[name]) for name in view_model.model_fields)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(view_model))


def _value(hint: Any, message: Message, name: str) -> Any:
    if hint is Any:
        return _opened(getattr(message, f"{name}_json"))
    value = getattr(message, name)
    if isinstance(value, Timestamp):
        return timestamp_from_pb(value)
    origin = typing.get_origin(hint)
    if origin in (tuple, list):
        inner = typing.get_args(hint)[0]
        return tuple(_item(inner, item) for item in value)
    if origin in (dict, collections.abc.Mapping):
        return dict(value)
    if origin in (typing.Union, types.UnionType):
        inner = next(one for one in typing.get_args(hint) if one is not type(None))
        if not message.HasField(name):
            return None
        return _item(inner, value)
    return _item(hint, value)


def _item(hint: Any, value: Any) -> Any:
    nested = isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, BaseModel))
    return from_proto(cast(type[Any], hint), value) if nested else value


def _opened(text: str) -> Any:
    """The JSON in a text field: None when it is empty, the text itself when it is none or nested too deeply."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text
    return text if deeper_than(value, 2 * MAX_NESTING) else value
