"""The life of a run to scale: a bar of how long it waited, was with an executor and ran, and what that comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from toban_domain.run import RunState
from toban_domain.state_times import StateSpan

WIDTH = 1000.0
SMALLEST = 5.0
"""Of a part, so that a short one is still seen; longer ones give it up."""
WAITING, RETRY = "WAITING", "RETRY"

_TONES = {
    WAITING: "wait",
    RETRY: "retry",
    RunState.DEFERRED.value: "held",
    RunState.ASSIGNED.value: "sent",
    RunState.WAITING_WORKER.value: "sent",
    RunState.RUNNING.value: "run",
    RunState.CANCEL_REQUESTED.value: "stop",
}


@dataclass(frozen=True, slots=True)
class LifePart:
    """One stay. `kind` is WAITING or RETRY (the wait before the first attempt and before a further one), else the state."""

    kind: str
    seconds: float
    x: float
    width: float

    @property
    def tone(self) -> str:
        """The class of its colour."""
        return tone(self.kind)


@dataclass(frozen=True, slots=True)
class RunLife:
    """The parts in order, and the seconds of each kind in all, in the order in which they came first."""

    parts: Sequence[LifePart]
    totals: dict[str, float]


def tone(kind: str) -> str:
    """The class of the colour of a kind of stay."""
    return _TONES.get(kind, "lost")


def run_life(spans: Sequence[StateSpan], due: datetime | None, now: datetime) -> RunLife | None:
    """None before the run is due, and without events that tell it. A run that is created ahead waits from when it is due on."""
    stays = [
        (kind, seconds)
        for kind, span in _kinds(_from_due(spans, due, now))
        if (seconds := span.lasted(now).total_seconds()) > 0
    ]
    if not stays:
        return None
    totals: dict[str, float] = {}
    for kind, seconds in stays:
        totals[kind] = totals.get(kind, 0.0) + seconds
    parts, x = [], 0.0
    for (kind, seconds), width in zip(stays, _widths([seconds for _, seconds in stays]), strict=True):
        parts.append(LifePart(kind, seconds, round(x, 1), round(width, 1)))
        x += width
    return RunLife(parts, totals)


def _from_due(spans: Sequence[StateSpan], due: datetime | None, now: datetime) -> Sequence[StateSpan]:
    if not spans or due is None or spans[0].state != RunState.PENDING:
        return spans
    first, *later = spans
    if first.left_at is None and due >= now:
        return ()
    if first.entered_at < due <= (first.left_at or now):
        return (replace(first, entered_at=due), *later)
    return spans


def _kinds(spans: Sequence[StateSpan]) -> list[tuple[str, StateSpan]]:
    found, sent = [], False
    for span in spans:
        sent = sent or span.state == RunState.ASSIGNED
        kind = (RETRY if sent else WAITING) if span.state == RunState.PENDING else span.state
        found.append((kind, span))
    return found


def _widths(seconds: Sequence[float]) -> list[float]:
    """In proportion, but none below the smallest width; together WIDTH."""
    least = min(SMALLEST, WIDTH / len(seconds))
    whole = sum(seconds)
    widths = [max(least, one / whole * WIDTH) for one in seconds]
    room = sum(one - least for one in widths)
    share = (WIDTH - least * len(widths)) / room if room else 0.0
    return [least + (one - least) * share for one in widths]
