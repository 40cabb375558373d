"""Orders that nobody could deliver: an executor that leaves one open for too long gets no more grants (docs/fencing.md 3.8)."""

from __future__ import annotations

from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.store import executors
from toban_domain.epoch import Term
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import fenced_tx

ORDERS_TICK_SECONDS = 5.0
_log = get_logger(__name__)


class OrderKeeper:
    """The leader's loop `orders`, for one term."""

    def __init__(self, *, pool: Pool, term: Term, settings: SettingsSource) -> None:
        self._pool = pool
        self._term = term
        self._settings = settings

    async def run_once(self) -> int:
        """Cut executors whose orders have been open for reassign_after_seconds; how many."""
        seconds = self._settings.known["reassign_after_seconds"]
        async with fenced_tx(self._pool, self._term) as t:
            cut = await executors.cut_silent(t, open_seconds=seconds)
        if cut:
            _log.warning("executors take no orders: no more grants for them", worker_ids=cut)
        return len(cut)
