"""What the end of the lease does with each live attempt, which are frozen, and what coordinators know of it (docs/fencing.md 3.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import FreezeTurn
from toban_executor.decide.models import AttemptEnd

LEASE_REASON = "the lease was not renewed in time"

_SIGKILL = 9


def killed_at_lease_end(end: AttemptEnd) -> AttemptEnd:
    """The end of an attempt that this process has killed in place of its guard: the guard sees a job that died of SIGKILL and may not know why.

    What it has decided, or how the job ended by itself, stays.
    """
    if end.cause or end.signal != _SIGKILL:
        return end
    return end._replace(cause="lease", reason=LEASE_REASON)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeNote:
    """An attempt that has been frozen. `turns` counts freezes and thaws, so it is odd while the attempt is frozen.

    `seconds` is the time that it has been frozen in all, `turned_ns` the moment of the last turn in Unix nanoseconds.
    """

    turns: int
    seconds: float
    turned_ns: int

    @property
    def frozen(self) -> bool:
        """True while it is frozen."""
        return self.turns % 2 == 1


@dataclass(slots=True)
class _Entry:
    on_lease_loss: str
    turns: int = 0
    seconds: float = 0.0
    since: float = 0.0
    turned_ns: int = 0
    acknowledged: int = 0

    def total(self, now: float) -> float:
        return self.seconds + (now - self.since if self.turns % 2 else 0.0)


class LeaseEndBook:
    """All live attempts. Times are seconds on CLOCK_BOOTTIME."""

    def __init__(self) -> None:
        self._entries: dict[AttemptKey, _Entry] = {}

    def opened(self, key: AttemptKey, on_lease_loss: str) -> None:
        """An attempt was given to a guard; `on_lease_loss` is its definition's (freeze, kill, continue)."""
        self._entries[key] = _Entry(on_lease_loss)

    def closed(self, key: AttemptKey) -> bool:
        """The attempt has ended; whether it was frozen."""
        entry = self._entries.pop(key, None)
        return entry is not None and entry.turns % 2 == 1

    def turned(self, turn: FreezeTurn, now: float) -> bool:
        """A guard, or this process in its place, has frozen or thawed an attempt; False when that was known."""
        entry = self._entries.get(turn.key)
        if entry is None:
            return False
        if turn.frozen == (entry.turns % 2 == 1):
            entry.seconds = max(entry.seconds, turn.seconds)
            return False
        entry.seconds = max(entry.total(now), turn.seconds)
        entry.turns += 1
        entry.since, entry.turned_ns = now, turn.at_ns
        return True

    @property
    def to_freeze(self) -> frozenset[AttemptKey]:
        """Those that the end of the lease freezes."""
        return self._with("freeze")

    @property
    def to_kill(self) -> frozenset[AttemptKey]:
        """Those that the end of the lease kills. A step of the wall clock freezes them first."""
        return self._with("kill")

    @property
    def continuing(self) -> frozenset[AttemptKey]:
        """Those that run on when the lease ends."""
        return self._with("continue")

    def _with(self, on_lease_loss: str) -> frozenset[AttemptKey]:
        return frozenset(key for key, entry in self._entries.items() if entry.on_lease_loss == on_lease_loss)

    @property
    def frozen(self) -> frozenset[AttemptKey]:
        """Those that are frozen now, whatever the reason."""
        return frozenset(key for key, entry in self._entries.items() if entry.turns % 2)

    def seconds(self, now: float) -> dict[AttemptKey, float]:
        """How long each was frozen in all, of those that ever were."""
        return {key: entry.total(now) for key, entry in self._entries.items() if entry.turns}

    def over(self, now: float, limit: float) -> list[AttemptKey]:
        """Those that have been frozen without a pause for `limit` seconds."""
        return [key for key, entry in self._entries.items() if entry.turns % 2 and now - entry.since >= limit]

    def unacknowledged(self, live: Iterable[AttemptKey], now: float) -> dict[AttemptKey, FreezeNote]:
        """What the next heartbeat carries of these attempts: every frozen one, and turns that no coordinator has acknowledged."""
        notes = {}
        for key in live:
            entry = self._entries.get(key)
            if entry is not None and (entry.turns % 2 or entry.turns > entry.acknowledged):
                notes[key] = FreezeNote(turns=entry.turns, seconds=entry.total(now), turned_ns=entry.turned_ns)
        return notes

    def acknowledge(self, sent: Mapping[AttemptKey, FreezeNote]) -> None:
        """A coordinator has answered a heartbeat with `sent`."""
        for key, note in sent.items():
            if (entry := self._entries.get(key)) is not None:
                entry.acknowledged = max(entry.acknowledged, note.turns)
