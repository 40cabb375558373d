"""The epoch gate of an executor: whose orders have authority (docs/fencing.md 3.9). No I/O: what must be persisted is returned as records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STALE_EPOCH = "STALE_EPOCH"
WRONG_INCARNATION = "WRONG_INCARNATION"


@dataclass(frozen=True, slots=True)
class Header:
    """What gives an order its authority. `serial` grows within an epoch, for each incarnation of an executor."""

    epoch: int
    serial: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Record:
    """What must be on disk before an answer is sent: `kind` is epoch, seen or tombstone. For an epoch the token is the epoch."""

    kind: str
    run_id: int
    token: int


class EpochGate:
    """Refuses an order for another incarnation, of a lower epoch than any known, or that is out of order within its epoch."""

    def __init__(self, *, incarnation: str) -> None:
        self.incarnation = incarnation
        self.epoch_max = 0
        # The part of epoch_max that is known to be on disk.
        self._epoch_saved = 0
        self._serial = 0

    def restore(self, epoch_max: int) -> None:
        """Start from the epoch that an earlier incarnation persisted."""
        self.epoch_max = self._epoch_saved = epoch_max

    def admit(self, header: Header, *, any_serial: bool = False) -> tuple[str, list[Record]]:
        """A refusal code (empty: admitted) and the records to persist before the answer.

        `any_serial` is for cancels and revokes relayed in a heartbeat's answer: PostgreSQL holds them open, they are
        idempotent, and orders sent directly since then have higher serials.
        """
        if header.incarnation != self.incarnation:
            return WRONG_INCARNATION, []
        if header.epoch < self.epoch_max:
            return STALE_EPOCH, []
        if header.epoch == self.epoch_max and header.serial <= self._serial:
            return ("", []) if any_serial else (STALE_EPOCH, [])
        records = self.raise_epoch(header.epoch)
        self._serial = header.serial
        return "", records

    def raise_epoch(self, epoch: int) -> list[Record]:
        """Take note of an epoch; a higher one starts its own serials. Returns the record of the highest epoch until it is on disk."""
        if epoch > self.epoch_max:
            self.epoch_max, self._serial = epoch, 0
        return [] if self._epoch_saved == self.epoch_max else [Record("epoch", 0, self.epoch_max)]

    def saved(self, records: Iterable[Record]) -> None:
        """These records are on disk."""
        self._epoch_saved = max([self._epoch_saved, *(record.token for record in records if record.kind == "epoch")])
