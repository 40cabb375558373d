"""How many events one fenced transaction takes: counted in rows and in bytes of payloads, since an event may start a hundred large runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toban_coordinator.decide.notifications.events import first_starts
from toban_domain.event import EventPlan


class Room:
    """What is left of the room for one write. The first event always fits; one that alone is larger may be `cut`."""

    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._bytes = size
        self._empty = True

    def takes(self, plan: EventPlan) -> bool:
        """Takes the event in if it fits."""
        rows, size = _rows(plan), _bytes(plan)
        if not self._empty and (rows > self._rows or size > self._bytes):
            return False
        self._rows -= rows
        self._bytes -= size
        self._empty = False
        return True

    def cut(self, plan: EventPlan) -> EventPlan:
        """`plan` with as many of its runs as fit here, at least one; the rest is for a later write."""
        rows, size = self._rows - 1, self._bytes - len(plan.event.payload.encode())
        for kept, start in enumerate(plan.starts):
            rows, size = rows - 1, size - len(start.template.payload.encode())
            if kept and (rows < 0 or size < 0):
                return first_starts(plan, kept)
        return plan


def front(plans: Sequence[EventPlan], room: Room) -> list[EventPlan]:
    """The first of `plans` that fit, at least one, which is cut when it alone is too large."""
    found: list[EventPlan] = []
    for plan in [room.cut(plans[0]), *plans[1:]]:
        if not room.takes(plan):
            break
        found.append(plan)
    return found


def rows_of(plans: Iterable[EventPlan]) -> int:
    """How many rows of a Room these take."""
    return sum(_rows(plan) for plan in plans)


def _rows(plan: EventPlan) -> int:
    return 1 + len(plan.starts)


def _bytes(plan: EventPlan) -> int:
    """The payload of the event, which goes to the history, and those of its runs."""
    return len(plan.event.payload.encode()) + sum(len(start.template.payload.encode()) for start in plan.starts)
