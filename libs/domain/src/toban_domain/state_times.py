"""How long a run was in each of its states, by the events that changed it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from toban_domain.run import TERMINAL, RunState


@dataclass(frozen=True, slots=True)
class StateSpan:
    """One stay in a state. `event` is the place of the event that began it, from 0, None without one; `left_at` is None while it lasts."""

    event: int | None
    state: str
    entered_at: datetime
    left_at: datetime | None

    def lasted(self, now: datetime) -> timedelta:
        """Until its end, or until now. Never negative: events of several processes may have times that differ a little."""
        return max((self.left_at or now) - self.entered_at, timedelta())


@dataclass(slots=True)
class _Move:
    """A change into another state."""

    event: int | None
    at: datetime
    to: str


def state_spans(
    changes: Iterable[tuple[datetime | None, str]], state: str, started: Iterable[datetime | None] = ()
) -> tuple[StateSpan, ...]:
    """The stays of a run that is in `state` now, in order; a terminal state is none.

    `changes` are the times of its events and the states that they led to, "" = no change, oldest first. When the last of them is not
    `state`, later events are missing: the end of the last stay is unknown, and it is left out. `started` are the times at which executors
    started its attempts: an event is as late as the report of it, and a report of the end implies the start.
    """
    entered = [_Move(place, at, to) for place, (at, to) in enumerate(changes) if at is not None and to]
    moves = [one for number, one in enumerate(entered) if number == 0 or one.to != entered[number - 1].to]
    for at in started:
        if at is not None:
            _begin_running(moves, at)
    spans = [
        StateSpan(one.event, one.to, one.at, moves[number + 1].at if number + 1 < len(moves) else None)
        for number, one in enumerate(moves)
    ]
    if spans and (spans[-1].state != state or state in TERMINAL):
        spans.pop()
    return tuple(spans)


def _begin_running(moves: list[_Move], at: datetime) -> None:
    """Ends the stay in ASSIGNED in which an attempt was started at this time."""
    for number, (one, after) in enumerate(pairwise(moves)):
        if one.to == RunState.ASSIGNED and one.at <= at < after.at:
            if after.to == RunState.RUNNING:
                after.at = at
            else:
                moves.insert(number + 1, _Move(None, at, RunState.RUNNING.value))
            return
