"""Lists that are longer than a page of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toban_cli import report

# Servers give no more at once.
PAGE = 500


def collect(ask: Callable[[Any], Any], field: str, limit: int) -> tuple[list[Any], bool]:
    """The first `limit` things of a list, and whether there are more; `ask` gets a Page and gives the answer whose `field` has some of them."""
    from toban_proto.v1.common_pb2 import Page

    found: list[Any] = []
    cursor = ""
    while len(found) < limit:
        answer = ask(Page(limit=min(limit - len(found), PAGE), cursor=cursor))
        found += getattr(answer, field)
        cursor = answer.next_cursor
        if not cursor:
            return found, False
    return found, True


def tell_more(things: str, limit: int) -> None:
    """That a list by name is not whole."""
    report.note(f"there are more than {limit} {things}; --limit shows more of them")
