"""Objects that tests share come back to the state of their start."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import pytest

from toban_testing import kept_state
from toban_testing.kept_state import KeptState


@dataclass(frozen=True, slots=True)
class Whole:
    """Slots, and no change by assignment."""

    part: Any
    flag: threading.Event = field(default_factory=threading.Event)
    free: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(2))


class Part:
    """Refers back."""

    def __init__(self) -> None:
        self.number = 1
        self.seen: list[int] = [1]
        self.recent: OrderedDict[str, list[int]] = OrderedDict(a=[1])
        self.me = self


class Connection:
    """Stays open."""

    calls = 0


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of this file count as ours."""
    monkeypatch.setattr(kept_state, "OURS", __name__)


def test_attributes_and_what_they_hold_are_as_before() -> None:
    part = Part()
    whole, seen = Whole(part), part.seen
    state = KeptState(whole)
    for _ in range(2):
        part.number, part.seen = 2, [9]
        part.further = 3  # type: ignore[attr-defined]
        seen.append(2)
        part.recent["a"].append(2)
        part.recent["b"] = []
        whole.flag.set()
        assert whole.free.acquire(blocking=False)
        object.__setattr__(whole, "part", None)
        state.restore()
        assert whole.part is part and part.seen is seen
        assert (part.number, seen, part.recent) == (1, [1], OrderedDict(a=[1]))
        assert not hasattr(part, "further") and not whole.flag.is_set()
        assert [whole.free.acquire(blocking=False) for _ in range(3)] == [True, True, False]
        state.restore()


def test_types_that_are_named_stay_as_they_are() -> None:
    connection = Connection()
    whole = Whole(connection)
    state = KeptState(whole, without=(Connection,))
    connection.calls = 2
    state.restore()
    assert connection.calls == 2
