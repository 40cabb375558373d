"""The attempts that one executor has seen, and its tombstones (docs/fencing.md 3.9). No I/O.

A tombstone is a refused or revoked attempt that must never start here. Both tables forget what lies below the smallest token whose start is
not confirmed, since such tokens are refused anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toban_domain.outcome import AttemptKey, AttemptState
from toban_fencing.epoch_gate import Record


class AttemptTable:
    """State of each attempt, the live ones, and the tombstones. A pair (run, token) is accepted at most once."""

    def __init__(self) -> None:
        self.smallest_live = 0
        self._seen: dict[AttemptKey, AttemptState] = {}
        self._live: set[AttemptKey] = set()
        # Accepted, but the record of it is not on disk yet: no answer was sent, so it may be withdrawn.
        self._unsaved: set[AttemptKey] = set()
        self._tombstones: set[AttemptKey] = set()

    def restore(self, *, tombstones: Iterable[AttemptKey], finished: Iterable[AttemptKey]) -> None:
        """Load what the journal kept; attempts of earlier incarnations count as finished."""
        self._tombstones.update(tombstones)
        self._seen.update((key, AttemptState.FINISHED) for key in finished)

    def state(self, key: AttemptKey) -> AttemptState | None:
        """The state of an attempt; None when this executor has not seen it, or has forgotten it."""
        return self._seen.get(key)

    def is_buried(self, key: AttemptKey) -> bool:
        """True when the attempt has a tombstone."""
        return key in self._tombstones

    def bury(self, key: AttemptKey) -> list[Record]:
        """Give the attempt a tombstone; the record to persist, none when it had one."""
        if key in self._tombstones:
            return []
        self._tombstones.add(key)
        return [Record("tombstone", *key)]

    def accept(self, key: AttemptKey) -> list[Record]:
        """The attempt is accepted and live; the record to persist before the answer."""
        self._seen[key] = AttemptState.ACCEPTED
        self._live.add(key)
        self._unsaved.add(key)
        return [Record("seen", *key)]

    def unsaved_record(self, key: AttemptKey) -> list[Record]:
        """The record of an acceptance that is not on disk yet, so that an answer from the table waits for it too."""
        return [Record("seen", *key)] if key in self._unsaved else []

    def saved(self, records: Iterable[Record]) -> None:
        """These records are on disk."""
        self._unsaved.difference_update(AttemptKey(one.run_id, one.token) for one in records if one.kind == "seen")

    def withdraw(self, keys: Iterable[AttemptKey]) -> None:
        """The acceptance of these could not be persisted, so it did not happen; no answer was sent."""
        for key in keys:
            self._seen.pop(key, None)
            self._live.discard(key)
            self._unsaved.discard(key)

    def cancelling(self, key: AttemptKey) -> None:
        """A cancel of the attempt was accepted."""
        self._seen[key] = AttemptState.CANCELLING

    def running(self, key: AttemptKey) -> None:
        """A guard has the attempt; its acceptance is on disk, or its answer waits for the disk."""
        self._unsaved.discard(key)
        if self._seen.get(key) is AttemptState.ACCEPTED:
            self._seen[key] = AttemptState.RUNNING

    def finished(self, key: AttemptKey) -> None:
        """The attempt has ended and its process tree is empty: its slot is free."""
        self._seen[key] = AttemptState.FINISHED
        self._live.discard(key)
        self._unsaved.discard(key)

    def forget_below(self, smallest_live: int, keep: Callable[[], Iterable[AttemptKey]] = tuple) -> None:
        """Drop seen and refused attempts with smaller tokens; live ones and those of `keep` stay. A smaller value than before changes nothing."""
        if smallest_live <= self.smallest_live:
            return
        self.smallest_live = smallest_live
        kept = {*self._live, *keep()}
        old = [key for key in self._seen if key.token < smallest_live and key not in kept]
        for key in old:
            del self._seen[key]
        self._tombstones = {key for key in self._tombstones if key.token >= smallest_live}

    @property
    def live_count(self) -> int:
        """Attempts that are accepted and not finished."""
        return len(self._live)

    @property
    def live(self) -> list[tuple[AttemptKey, AttemptState]]:
        """Attempts that are accepted and not finished, oldest first."""
        return [(key, self._seen[key]) for key in sorted(self._live, key=lambda key: key.token)]

    def live_of(self, keys: Iterable[AttemptKey]) -> list[AttemptKey]:
        """Those of `keys` that are live."""
        return [key for key in keys if key in self._live]
