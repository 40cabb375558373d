"""Who leads as far as this process knows: from its reads of the leader row, and from its own terms (docs/fencing.md 3.1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from toban_coordinator.ports.leader import LeaderView
from toban_coordinator.store.cluster.leader import Contender
from toban_domain.epoch import Epoch, near_limit
from toban_observability import metrics
from toban_runtime.clock import Clock
from toban_store.tx import Row

# A read that shows an older epoch than the last one may come from a server that lags. When no other has come for so long, PostgreSQL has
# gone back (a restore), and the older epoch is the present one.
OLDER_EPOCH_SECONDS = 3.0
_epoch = metrics.gauge("toban_leader_epoch", "Epoch in the leader row, as last read.")
_generation = metrics.gauge(
    "toban_epoch_generation", "Generation of that epoch; each fail-over or restore of PostgreSQL consumes one."
)
_near_limit = metrics.gauge("toban_epoch_near_limit", "1 when fewer than 64 generations of epochs are left.")
_SHARED = ("epoch", "holder", "worker_id", "address", "node_id", "beat", "last_tick_at", "last_fire_at")


class KnownLeader:
    """The newest view, never one from before: a read that was under way when an own term began says nothing about that term."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._view = LeaderView()
        self._terms = 0
        self._leading = False
        self._read_at = self._led_at = clock.boottime()

    @property
    def view(self) -> LeaderView:
        """The row's part of the view; what only a running term knows is missing."""
        return self._view

    @property
    def leaderless_seconds(self) -> float:
        """How long ago this process last saw a leader beat, its own terms included; since its start when it never did."""
        return self._clock.boottime() - self._led_at

    def begin_read(self) -> int:
        """A read of the row is sent now; its answer goes to `note_row` with this number."""
        return self._terms

    def note_row(self, row: Row, *, read: int) -> None:
        """The row that a read returned; ignored when it is older than what is known."""
        now = self._clock.boottime()
        if self._leading or read != self._terms:
            return
        if row["epoch"] < self._view.epoch and now - self._read_at <= OLDER_EPOCH_SECONDS:
            return
        before, self._read_at = self._view, now
        self._view = LeaderView(**{name: row[name] for name in _SHARED})
        # A take-over moves the beat as well: only the second beat of a term proves that its leader leads.
        if row["epoch"] == before.epoch and row["beat"] > before.beat and row["resigned_epoch"] != row["epoch"]:
            self._led_at = now
        _show(row["epoch"])

    def begin_term(self, epoch: int, me: Contender) -> None:
        """This process has won the term of this epoch."""
        self._leading, self._terms = True, self._terms + 1
        self._view = LeaderView(
            epoch=epoch,
            holder=me.incarnation,
            worker_id=me.worker_id,
            address=me.address,
            node_id=me.node_id,
            last_fire_at=self._view.last_fire_at,
        )
        _show(epoch)

    def note_beat(self, beat: int) -> None:
        """The own term has beaten."""
        self._view = replace(self._view, beat=beat)
        if self._leading:
            self._led_at = self._clock.boottime()

    def end_term(self, last_fire_at: datetime | None) -> None:
        """The own term is over: the row decides again."""
        self._leading, self._read_at = False, self._clock.boottime()
        self._view = replace(self._view, last_fire_at=last_fire_at or self._view.last_fire_at)


def _show(epoch: int) -> None:
    # Exact as a float: the low bits of an epoch are zero.
    _epoch.set(epoch)
    _generation.set(Epoch.unpack(epoch).generation)
    _near_limit.set(near_limit(epoch))
