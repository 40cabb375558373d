"""The executor's gate for orders: epoch, serial and incarnation (docs/fencing.md 3.9). Pure; the caller persists the state before it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Refusal(StrEnum):
    """Why an order was not looked at."""

    STALE_EPOCH = "STALE_EPOCH"
    WRONG_INCARNATION = "WRONG_INCARNATION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The highest epoch ever heard of (persisted), and the highest serial within it. `incarnation` is this process's own."""

    incarnation: str
    epoch_max: int = 0
    serial: int = 0

    def heard(self, epoch: int) -> Gate:
        """The gate after an epoch became known without an order (Register, Heartbeat): only ever raised."""
        return replace(self, epoch_max=epoch, serial=0) if epoch > self.epoch_max else self

    def admit(self, *, epoch: int, serial: int, incarnation: str) -> Gate | Refusal:
        """The gate after this order, or why it is refused. A serial must grow within its epoch, so a late copy of an order is refused."""
        if incarnation != self.incarnation:
            return Refusal.WRONG_INCARNATION
        if epoch < self.epoch_max or (epoch == self.epoch_max and serial <= self.serial):
            return Refusal.STALE_EPOCH
        return replace(self, epoch_max=epoch, serial=serial)
