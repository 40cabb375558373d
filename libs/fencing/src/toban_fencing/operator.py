"""The leader as an operator saw it: an action on a leader names the epoch that was seen, so that a stale page cannot depose a new one."""

from __future__ import annotations

from dataclasses import dataclass

from toban_domain.errors import ErrorCode, TobanError


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLeader:
    """The leader row as a page or a command showed it; `epoch` 0 = no coordinator has led yet, `address` is empty while none leads."""

    epoch: int
    worker_id: int = 0
    address: str = ""

    @property
    def present(self) -> bool:
        """True when a coordinator leads."""
        return bool(self.address)

    def describe(self, *, since: str = "") -> str:
        """One line for people; `since` is how long it has led, in words."""
        if not self.present:
            return f"none (last epoch {self.epoch})"
        led = f", since {since}" if since else ""
        return f"{self.address} (worker {self.worker_id}, epoch {self.epoch}{led})"

    def __str__(self) -> str:
        return self.describe()


def require_epoch(seen: int) -> int:
    """The epoch of a request. Raises INVALID_ARGUMENT when it names none."""
    if seen <= 0:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "epoch is missing: give the one that `toban cluster status` shows")
    return seen


def no_leader(epoch: int) -> TobanError:
    """The refusal while no coordinator leads; `epoch` is the last one."""
    return TobanError(
        ErrorCode.RESOURCE_INVALID_STATE,
        "no coordinator leads at the moment: there is none to demote",
        detail={"epoch": epoch},
    )


def stale_epoch(*, seen: int, present: int) -> TobanError:
    """The refusal when another epoch leads than the operator saw."""
    return TobanError(
        ErrorCode.CONFLICT,
        f"epoch {present} leads, not {seen}: this is another leader than the one you saw; check `toban cluster status`, then repeat",
        detail={"epoch": present},
    )
