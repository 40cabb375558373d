"""Events in a transaction of your own database: they exist when it commits, and never when it rolls back (docs/events.md).

The database has Toban's schema `scheduler`, and your login the role `toban_emit`. `toban.client` emits over REST instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from toban.errors import InvalidRequestError
from toban.transactions import OutsideTransactionError, fetch_value, fetch_value_async

if TYPE_CHECKING:
    from toban.transactions import AsyncConnection, SyncConnection

__all__ = ["OutsideTransactionError", "checked", "emit", "emit_async"]

MAX_PAYLOAD_BYTES = 32_768
MAX_DEPTH = 100
MAX_KEY_BYTES = 200
_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_STATEMENT = "SELECT scheduler.emit_event(:event_type, CAST(:payload AS jsonb), :dedupe_key)"


def emit(
    connection: SyncConnection, event_type: str, payload: Mapping[str, Any] | None = None, *, dedupe_key: str = ""
) -> int:
    """The number of an event that is added in the transaction of `connection`. You commit it, with your data or not at all.

    `connection` is one of psycopg 3, a Connection or Session of SQLAlchemy 2, or `django.db.connection` (`connections[name]`) in an
    atomic block. Of events of a type with one `dedupe_key` only the first counts.

    Raises InvalidRequestError before anything is sent, so that the transaction goes on, OutsideTransactionError, and what the driver
    raises: an insufficient privilege means that `GRANT toban_emit` is missing.
    """
    return int(fetch_value(connection, _STATEMENT, checked(event_type, payload, dedupe_key)))


async def emit_async(
    connection: AsyncConnection, event_type: str, payload: Mapping[str, Any] | None = None, *, dedupe_key: str = ""
) -> int:
    """As `emit`, for an AsyncConnection of psycopg 3, and an AsyncConnection or AsyncSession of SQLAlchemy 2."""
    return int(await fetch_value_async(connection, _STATEMENT, checked(event_type, payload, dedupe_key)))


def checked(
    event_type: str,
    payload: Mapping[str, Any] | None,
    dedupe_key: str,
    default: Callable[[Any], Any] | None = None,
) -> dict[str, str | None]:
    """Type, payload as JSON and key (None without one), by the names of the parameters of the statement.

    `default` is that of `json.dumps`: it gives what is written for a value that JSON does not have.

    Raises InvalidRequestError for what the database would refuse.

    >>> checked("order.paid", {"id": 7}, "order-7")
    {'event_type': 'order.paid', 'payload': '{"id": 7}', 'dedupe_key': 'order-7'}
    """
    if not _TYPE.fullmatch(event_type):
        raise _invalid(
            f"{event_type[:64]!r} is no event type; use 1 to 128 letters, digits and . _ : / -, a letter or digit first"
        )
    if not _is_unicode(dedupe_key):
        raise _invalid("the dedupe_key has a lone surrogate, which is no character; use text, or a hash")
    if len(dedupe_key.encode()) > MAX_KEY_BYTES or "\x00" in dedupe_key:
        raise _invalid(f"the dedupe_key has more than {MAX_KEY_BYTES} bytes, or a zero byte; shorten it, or use a hash")
    try:
        text = json.dumps(dict(payload or {}), allow_nan=False, ensure_ascii=False, default=default)
        size = len(text.encode()) if _NUL.search(text) else _stored_bytes(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"the payload cannot be written as JSON: {error}; use texts, numbers, lists and dicts") from None
    if size > MAX_PAYLOAD_BYTES:
        message = (
            f"the payload has {size} bytes, at most {MAX_PAYLOAD_BYTES} are possible; store the data, and pass its name"
        )
        raise InvalidRequestError(message, code="PAYLOAD_TOO_LARGE")
    if _NUL.search(text):
        raise _invalid("a text of the payload has a zero byte, which PostgreSQL cannot store; remove it")
    if _depth(payload or {}) > MAX_DEPTH:
        raise _invalid(f"the payload has more than {MAX_DEPTH} levels; make it flatter")
    return {"event_type": event_type, "payload": text, "dedupe_key": dedupe_key or None}


def _stored_bytes(text: str) -> int:
    """The bytes that PostgreSQL counts, as `jsonb::text`: numbers without an exponent, and each name once."""

    def written_out(number: str) -> int:
        digits = format(Decimal(number), "f")
        # There is no -0 in jsonb. The number that is made here has the same length.
        return int("1" * len(digits.removeprefix("-") if not Decimal(number) else digits))

    return len(json.dumps(json.loads(text, parse_float=written_out), ensure_ascii=False).encode())


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _depth(value: Any) -> int:
    """The levels of objects and lists, `value` included."""
    deepest, left = 0, [(value, 1)]
    while left:
        one, level = left.pop()
        inner = one.values() if isinstance(one, Mapping) else one if isinstance(one, (list, tuple)) else None
        if inner is not None:
            deepest = max(deepest, level)
            left += [(item, level + 1) for item in inner]
    return deepest


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="INVALID_ARGUMENT")
