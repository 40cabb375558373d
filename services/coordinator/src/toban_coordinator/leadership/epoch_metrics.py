"""The epoch as metrics show it: exact, since its low bits are zero, and how far its generations are used up."""

from __future__ import annotations

from toban_domain.epoch import Epoch, near_limit
from toban_observability import metrics

_epoch = metrics.gauge("toban_leader_epoch", "Epoch in the leader row, as last read.")
_generation = metrics.gauge(
    "toban_epoch_generation", "Generation of that epoch; each fail-over or restore of PostgreSQL consumes one."
)
_near_limit = metrics.gauge("toban_epoch_near_limit", "1 when fewer than 64 generations of epochs are left.")


def tell(epoch: int) -> None:
    """Show this epoch."""
    _epoch.set(epoch)
    _generation.set(Epoch.unpack(epoch).generation)
    _near_limit.set(near_limit(epoch))
