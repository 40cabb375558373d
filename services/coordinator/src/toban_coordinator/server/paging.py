"""Pages of a list: how many, after which one."""

from __future__ import annotations

from collections.abc import Sequence

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import common_pb2
from toban_store.tx import Row

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
MAX_ID = (1 << 63) - 1
MAX_DIGITS = 19


def limit_of(page: common_pb2.Page) -> int:
    """How many rows; DEFAULT_LIMIT when the caller does not say. Raises INVALID_ARGUMENT."""
    if not 0 <= page.limit <= MAX_LIMIT:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"page.limit is {page.limit}; use 1 to {MAX_LIMIT}")
    return page.limit or DEFAULT_LIMIT


def below(cursor: str) -> int:
    """The id that a page of newest ones stays below. Raises INVALID_ARGUMENT."""
    if not cursor:
        return MAX_ID
    if len(cursor) > MAX_DIGITS or not cursor.isascii() or not cursor.isdigit() or int(cursor) > MAX_ID:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"page.cursor {cursor[:MAX_DIGITS]!r} is not from an earlier page")
    return int(cursor)


def next_cursor(found: Sequence[Row], limit: int, column: str) -> str:
    """The cursor of the next page: the last row of this one, when there are more."""
    return str(found[limit - 1][column]) if len(found) > limit else ""
