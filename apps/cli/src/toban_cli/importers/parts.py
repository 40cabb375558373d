"""Parts of an import that `toban validate` and `toban apply` accept: each within the documents and bytes of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

# The coordinator takes no more in one Apply; a test of the architecture compares the two numbers.
MAX_DOCUMENTS = 2000


def parts(
    items: Iterable[T], *, documents: Callable[[T], int], size: Callable[[T], int], max_bytes: int
) -> Iterator[list[T]]:
    """The items in their order, in parts of at most MAX_DOCUMENTS documents and `max_bytes` bytes; no item is divided."""
    part: list[T] = []
    count = used = 0
    for item in items:
        more, bytes_more = documents(item), size(item)
        if part and (count + more > MAX_DOCUMENTS or used + bytes_more > max_bytes):
            yield part
            part, count, used = [], 0, 0
        part.append(item)
        count, used = count + more, used + bytes_more
    if part:
        yield part
