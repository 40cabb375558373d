"""Pages of a list: how many rows, after which one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_domain.errors import ErrorCode, TobanError
from toban_store.tx import Row

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
MAX_ID = (1 << 63) - 1
MAX_DIGITS = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which page: `limit` 0 = DEFAULT_LIMIT; `cursor` "" = the first page, else the `next_cursor` of an earlier one."""

    limit: int = 0
    cursor: str = ""

    @property
    def rows(self) -> int:
        """How many rows. Raises INVALID_ARGUMENT."""
        if not 0 <= self.limit <= MAX_LIMIT:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"page.limit is {self.limit}; use 1 to {MAX_LIMIT}")
        return self.limit or DEFAULT_LIMIT

    @property
    def below_id(self) -> int:
        """The id that a page of newest rows stays below. Raises INVALID_ARGUMENT."""
        cursor = self.cursor
        if not cursor:
            return MAX_ID
        if len(cursor) > MAX_DIGITS or not cursor.isascii() or not cursor.isdigit() or int(cursor) > MAX_ID:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"page.cursor {cursor[:MAX_DIGITS]!r} is not from an earlier page"
            )
        return int(cursor)


FIRST_PAGE = PageRequest()


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of the store; `next_cursor` "" = no more."""

    rows: Sequence[Row]
    next_cursor: str


def page_of(found: Sequence[Row], limit: int, column: str) -> Page:
    """The first `limit` rows; the cursor is the last one's `column` when there are more."""
    return Page(found[:limit], str(found[limit - 1][column]) if len(found) > limit else "")
