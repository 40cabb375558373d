"""The epochs that this executor knows: it takes no order of a lower one, and proves them to coordinators whose PostgreSQL went back."""

from toban_executor.decide.models import StartOrder
from toban_executor.ports.coordinator import SignedEpoch
from toban_executor.ports.journal import Journal
from toban_fencing.order_book import OrderBook
from toban_runtime.clock import Clock

# How much older than the last grant the signed epoch on disk may be, seconds: a restart presents that one, and each write costs an fsync.
SIGNED_EPOCH_SECONDS = 60.0


class KnownEpochs:
    """Raises the highest epoch of `book`, here and in the journal. `signed` is the newest proof of it."""

    def __init__(self, *, book: OrderBook[StartOrder], journal: Journal, clock: Clock) -> None:
        self.signed: SignedEpoch | None = None
        self._signed_saved_at = 0.0
        self._book = book
        self._journal = journal
        self._clock = clock

    def restore(self, signed: SignedEpoch | None) -> None:
        """Takes what the journal has, before the first call."""
        self.signed = signed

    async def learn(self, epoch: int) -> None:
        """An epoch that a coordinator named, on disk when this returns. Raises UNAVAILABLE when the journal cannot be written."""
        records = self._book.raise_epoch(epoch)
        await self._journal.record(records)
        self._book.saved(records)

    def note(self, epoch: int) -> None:
        """As `learn` without waiting, so that a slow disk costs no lease: the first order of the epoch waits for it."""
        if epoch > self._book.epoch_max:
            self._journal.post_records(self._book.raise_epoch(epoch))

    def note_signed(self, signed: SignedEpoch | None) -> None:
        """Keep what a coordinator signed: on disk at once when its epoch is new, else each SIGNED_EPOCH_SECONDS."""
        held, now = self.signed, self._clock.monotonic()
        if signed is None or not signed.replaces(held):
            return
        self.signed = signed
        new = held is None or (held.epoch, held.incarnation) != (signed.epoch, signed.incarnation)
        if new or now - self._signed_saved_at >= SIGNED_EPOCH_SECONDS:
            self._signed_saved_at = now
            self._journal.post_signed_epoch(signed)
