"""Which executor a word means: its number, its node, its instance."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

OFF = "off"


def find_executor(look: Callable[[bool], Sequence[Any]], word: str) -> Any:
    """The executor that `word` names: one that is there, else the newest of those that are gone.

    `look(include_off)` lists them. Raises EXECUTOR_NOT_FOUND with the nearest names, INVALID_ARGUMENT when several are meant.
    """
    there = look(False)
    found = _named(there, word) or _newest(_named(every := look(True), word))
    if not found:
        raise _not_found([*there, *every], word)
    if len(found) > 1:
        numbers = ", ".join(str(item.worker_id) for item in found)
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{word} has {len(found)} executors: name one by its number ({numbers})"
        )
    return found[0]


def _named(executors: Sequence[Any], word: str) -> list[Any]:
    """By number; else by instance, which is unique; else by node or address."""
    for fits in (
        lambda item: word.isdecimal() and item.worker_id == int(word),
        lambda item: item.instance == word,
        lambda item: word in (item.node_id, item.address),
    ):
        if found := [item for item in executors if fits(item)]:
            return _newest(found)
    return []


def _newest(executors: Sequence[Any]) -> list[Any]:
    """The newest incarnation of each instance."""
    newest = {item.instance: item for item in sorted(executors, key=lambda item: item.worker_id)}
    return sorted(newest.values(), key=lambda item: item.worker_id)


def _not_found(executors: Sequence[Any], word: str) -> TobanError:
    known = {item.node_id for item in executors} | {item.instance for item in executors}
    known |= {str(item.worker_id) for item in executors if item.state != OFF}
    close = difflib.get_close_matches(word, sorted(known), n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; `toban executor list` shows them"
    return TobanError(ErrorCode.EXECUTOR_NOT_FOUND, f"there is no executor {word!r}{hint}")
