"""Messages as JSON for programs: names as in the proto files, embedded JSON opened, epochs and tokens as text (they exceed 2^53)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.payload import MAX_NESTING, deeper_than

M = TypeVar("M", bound=Message)
_SAFE = 2**53
_ALWAYS_TEXT = frozenset({"epoch", "token", "leader_epoch"})


def plain(message: Message) -> dict[str, Any]:
    """One message; unset times are left out."""
    return _opened(
        MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True), message
    )


def given(message: Message) -> dict[str, Any]:
    """The fields of a message that were set, as `plain` writes them."""
    return _opened(MessageToDict(message, preserving_proto_field_name=True), message)


def from_plain(message: M, data: Mapping[str, Any]) -> M:
    """Fills a message with what `plain` made of another; null and unknown names are left out. Raises ValueError and TypeError."""
    for field in message.DESCRIPTOR.fields:
        stem = field.name.removesuffix("_json")
        if stem != field.name and data.get(stem) is not None:
            # With the blanks that the coordinators' own text has: PostgreSQL writes them.
            setattr(message, field.name, json.dumps(data[stem], ensure_ascii=False))
        elif (value := data.get(field.name)) is not None:
            _fill(message, field, value)
    return message


def _fill(message: Message, field: Any, value: Any) -> None:
    target = getattr(message, field.name)
    if field.message_type is None:
        read = int if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else lambda item: item
        if field.is_repeated:
            target.extend(read(item) for item in value)
        else:
            setattr(message, field.name, read(value))
    elif field.message_type.GetOptions().map_entry:
        target.update(value)
    elif field.is_repeated:
        for item in value:
            from_plain(target.add(), item)
    elif isinstance(target, Timestamp):
        target.FromJsonString(value)
    else:
        target.SetInParent()
        from_plain(target, value)


def plain_list(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Several messages."""
    return [plain(message) for message in messages]


def _opened(data: dict[str, Any], message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name not in data:
            continue
        value = data[field.name]
        if field.name.endswith("_json") and isinstance(value, str):
            # No result is not an empty one.
            out[field.name.removesuffix("_json")] = _parsed(value) if value or field.name != "result_json" else None
        elif field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) and field.name not in _ALWAYS_TEXT:
            out[field.name] = [_number(item) for item in value] if isinstance(value, list) else _number(value)
        elif field.message_type is not None and isinstance(value, list):
            out[field.name] = [
                _opened(item, part) for item, part in zip(value, getattr(message, field.name), strict=True)
            ]
        elif (
            field.message_type is not None
            and isinstance(value, dict)
            and field.message_type.name != "Timestamp"
            and not field.is_repeated
        ):
            out[field.name] = _opened(value, getattr(message, field.name))
        else:
            out[field.name] = value
    return out


def _number(value: Any) -> Any:
    """A 64-bit number, which protobuf's JSON has as text, as a number where every reader can hold it."""
    return int(value) if isinstance(value, str) and abs(int(value)) < _SAFE else value


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return text
    # SQL can emit what no writer of JSON or YAML could nest.
    return text if deeper_than(value, 2 * MAX_NESTING) else value
