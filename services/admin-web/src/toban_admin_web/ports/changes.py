"""What has changed in the cluster, as a coordinator tells it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import Protocol

RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Changes:
    """Kinds of things (runs, cluster, settings), and of runs their numbers: none when there were too many to name."""

    kinds: Set[str] = frozenset()
    runs: Set[int] = frozenset()

    def touch(self, topics: Set[str]) -> bool:
        """Whether a page about `topics`, kinds or `run:7`, may have changed."""
        if self.kinds & topics:
            return True
        watched = {topic for topic in topics if topic.startswith("run:")}
        return (
            RUNS in self.kinds
            and bool(watched)
            and (not self.runs or bool(watched & {f"run:{run}" for run in self.runs}))
        )


class ChangeSource(Protocol):
    """The stream of changes of a coordinator."""

    def watch(self, *, seconds: float) -> Iterator[Changes]:
        """Each change as it comes, the first answer at once; an empty one now and then. Raises TobanError when it breaks, or after `seconds`."""
        ...


@dataclass(frozen=True, slots=True)
class News:
    """What a page learns from a wait: the number to wait from next, whether it may have changed, and whether changes arrive at all."""

    number: int
    changed: bool
    live: bool


class ChangeBoard(Protocol):
    """The changes of the cluster, for all open pages of this process. Any thread may ask."""

    @property
    def number(self) -> int | None:
        """Differs after each change; None while changes do not arrive."""
        ...

    def page(self, since: datetime) -> AbstractContextManager[int]:
        """An open page, which was made at `since` and waits from the number of the context on."""
        ...

    def wait(self, seen: int, topics: Set[str], *, seconds: float, ended: Event) -> News:
        """Until something about `topics` has changed since `seen`, changes begin or cease to arrive, `seconds` have passed, or `ended` is set."""
        ...

    def wake(self) -> None:
        """Those who wait look at their `ended`."""
        ...
