"""Protobuf messages to answers, and the fields of requests to messages, by the names of their fields.

Unset times, optional numbers and messages become None. A field of an answer with type Any is read from the JSON
in the message's field with `_json` behind its name.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import MAX_NESTING, deeper_than
from toban_transport.convert import timestamp_from_pb, timestamp_to_pb

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def from_proto(answer: type[T], message: Message) -> T:
    """An `answer` with the values of a message. Raises AttributeError for a field that the message lacks."""
    return answer(**{name: read(message) for name, read in _readers(cast(Any, answer))})


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
        for item in value:
            if isinstance(item, Mapping):
                part = field.add()
                part.CopyFrom(to_proto(type(part), item))
            else:
                field.append(item)
    else:
        setattr(message, name, value)


@cache
def _readers(answer: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """For each field a function from the message to its value: the types are inspected once, since lists have hundreds of messages."""
    hints = typing.get_type_hints(answer)
    if issubclass(answer, BaseModel):
        return tuple((name, _reader(name, hints[name])) for name in answer.model_fields)
    return tuple((field.name, _reader(field.name, hints[field.name])) for field in dataclasses.fields(answer))


def _reader(name: str, hint: Any) -> Callable[[Any], Any]:
    if hint is Any:
        text = attrgetter(f"{name}_json")
        return lambda message: _opened(text(message))
    value, origin, inner = attrgetter(name), typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        convert = _item(inner[0])
        return lambda message: [convert(item) for item in value(message)]
    if origin is dict:
        return lambda message: dict(value(message))
    if origin is types.UnionType:
        convert = _item(next(kind for kind in inner if kind is not type(None)))
        return lambda message: convert(value(message)) if message.HasField(name) else None
    convert = _item(hint)
    return lambda message: convert(value(message))


def _item(hint: Any) -> Callable[[Any], Any]:
    if hint is datetime:
        return timestamp_from_pb
    nested = isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, BaseModel))
    return partial(from_proto, hint) if nested else _same


def _same(value: Any) -> Any:
    return value


def _opened(text: str) -> Any:
    """The JSON in a text field: None when it is empty, the text itself when it is none or nested too deeply."""
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text
    return text if deeper_than(value, 2 * MAX_NESTING) else value
