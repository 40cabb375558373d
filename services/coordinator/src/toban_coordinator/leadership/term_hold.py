"""What the main loop and the election's thread know of each other's part of a term. Each field is written by one thread, so no lock is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from toban_runtime.clock import Clock


class TermHold:
    """Until when the present term may be acted on: set by the election's thread, checked by the main loop at each use.

    A thread that stands still sets nothing, so the term ends here by itself.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._held: tuple[int, float] = (0, -math.inf)

    def set(self, epoch: int, until: float) -> None:
        """The term of this epoch holds until then (CLOCK_BOOTTIME, seconds)."""
        self._held = (epoch, until)

    def end(self) -> None:
        """No term holds."""
        self._held = (0, -math.inf)

    def holds(self, epoch: int) -> bool:
        """Whether this process may act as leader of this epoch now."""
        held, until = self._held
        return held == epoch and self._clock.boottime() <= until


@dataclass(slots=True)
class TermProgress:
    """What the loops of one term have done, for its beat: set by the main loop alone, so that a leader that does not tick shows no tick.

    It begins with the time of the take-over: a leader that never ticks is late as well.
    """

    last_tick_at: datetime
    last_fire_at: datetime | None = None
