"""Which orders are obeyed (docs/fencing.md 3.9), without I/O.

    StartJob ── header ──▶ seen before? ──▶ refused before? ──▶ too old, no lease, draining, unfit, no slot? ──▶ accepted
                  │              │                 │                          │
          STALE_EPOCH /     answer from       TOMBSTONE          the tombstone first, then the reason
       WRONG_INCARNATION     the table

Invariants: a pair (run, token) is accepted at most once; a refused or revoked pair is never accepted afterwards; nothing is
accepted without a valid lease. What must be on disk before the answer leaves comes back as records.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from toban_domain.outcome import AttemptKey, AttemptState
from toban_executor.decide.models import CancelOrder, Header, Record, StartAnswer, StartOrder

STALE_EPOCH = "STALE_EPOCH"
WRONG_INCARNATION = "WRONG_INCARNATION"


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why an order can never run here: a refusal code and one line for people."""

    refusal: str
    message: str


class OrderBook:
    """The executor's memory of orders: highest epoch and serial, attempts seen, tombstones, slots in use."""

    def __init__(self, *, incarnation: str, slots: int, unfit: Callable[[StartOrder], Unfit | None]) -> None:
        self.incarnation = incarnation
        self.slots = slots
        self.epoch_max = 0
        # What of it is on disk for certain.
        self._epoch_saved = 0
        self.smallest_live = 0
        # Three independent reasons to take no new work: a Drain order, the end of this process, the state of our row.
        self.drained = False
        self.stopping = False
        self.row_closed = False
        self._serial = 0
        self._unfit = unfit
        self._seen: dict[AttemptKey, AttemptState] = {}
        self._live: set[AttemptKey] = set()
        # Accepted, but the record of it is not on disk yet: nobody may be told, and it may be withdrawn.
        self._unsaved: set[AttemptKey] = set()
        self._tombstones: set[AttemptKey] = set()

    def restore(self, *, epoch_max: int, tombstones: Iterable[AttemptKey], finished: Iterable[AttemptKey]) -> None:
        """Put back what the journal kept; attempts of earlier incarnations count as finished."""
        self.epoch_max = self._epoch_saved = epoch_max
        self._tombstones.update(tombstones)
        self._seen.update((key, AttemptState.FINISHED) for key in finished)

    # ---- orders

    def start(
        self, header: Header, orders: Sequence[StartOrder], *, smallest_live: int, lease_valid: bool
    ) -> tuple[list[StartAnswer], list[StartOrder], list[Record]]:
        """Answers in order, the orders that are to be started, and what must be persisted first.

        An answer from the table whose own record is still under way brings that record again, so that it waits for the disk too.
        """
        refusal, records = self.admit(header)
        if refusal:
            return [StartAnswer(key=order.key, refusal=refusal) for order in orders], [], records
        self.forget_below(smallest_live)
        answers, accepted = [], []
        for order in orders:
            answer = self._start_one(order, lease_valid=lease_valid)
            answers.append(answer)
            if answer.refusal and order.key not in self._tombstones:
                self._tombstones.add(order.key)
                records.append(Record("tombstone", *order.key))
            elif answer.state is AttemptState.ACCEPTED and order.key not in self._seen:
                self._seen[order.key] = AttemptState.ACCEPTED
                self._live.add(order.key)
                self._unsaved.add(order.key)
                records.append(Record("seen", *order.key))
                accepted.append(order)
            else:
                records += self._unsaved_record(order.key)
        return answers, accepted, records

    def _start_one(self, order: StartOrder, *, lease_valid: bool) -> StartAnswer:
        known = self._seen.get(order.key)
        if known is not None:
            return StartAnswer(key=order.key, state=known)
        refused = self._why_not(order, lease_valid=lease_valid)
        if refused is not None:
            return StartAnswer(key=order.key, refusal=refused.refusal, message=refused.message)
        return StartAnswer(key=order.key, state=AttemptState.ACCEPTED)

    def _why_not(self, order: StartOrder, *, lease_valid: bool) -> Unfit | None:
        if order.key in self._tombstones:
            return Unfit("TOMBSTONE", "this attempt was refused or revoked before")
        if order.key.token < self.smallest_live:
            return Unfit("TOKEN_TOO_OLD", f"below the smallest live token {self.smallest_live}")
        if not lease_valid:
            return Unfit("LEASE_EXPIRED", "the executor's lease has run out")
        if not self.accepting:
            return Unfit("DRAINING", "the executor takes no new work")
        if (unfit := self._unfit(order)) is not None:
            return unfit
        if self.free_slots <= 0:
            return Unfit("NO_SLOT", f"all {self.slots} slots are in use")
        return None

    def cancel(
        self, header: Header, orders: Sequence[CancelOrder], *, relayed: bool = False
    ) -> tuple[list[str], list[CancelOrder], list[Record]]:
        """Results (cancelling, finished, unknown or a refusal), the cancels to carry out, and what to persist."""
        refusal, records = self.admit(header, any_serial=relayed)
        if refusal:
            return [refusal] * len(orders), [], records
        results, effects = [], []
        for order in orders:
            state = self._seen.get(order.key)
            if state is None:
                results.append("unknown")
            elif state is AttemptState.FINISHED:
                results.append("finished")
            else:
                self._seen[order.key] = AttemptState.CANCELLING
                records += self._unsaved_record(order.key)
                results.append("cancelling")
                effects.append(order)
        return results, effects, records

    def revoke(
        self, header: Header, keys: Sequence[AttemptKey], *, relayed: bool = False
    ) -> tuple[list[str], list[Record]]:
        """Results (gone, running, finished or a refusal) and the tombstones behind each `gone`."""
        refusal, records = self.admit(header, any_serial=relayed)
        if refusal:
            return [refusal] * len(keys), records
        results = []
        for key in keys:
            state = self._seen.get(key)
            if state is not None:
                results.append("finished" if state is AttemptState.FINISHED else "running")
                records += self._unsaved_record(key)
                continue
            if key not in self._tombstones:
                self._tombstones.add(key)
                records.append(Record("tombstone", *key))
            results.append("gone")
        return results, records

    def admit(self, header: Header, *, any_serial: bool = False) -> tuple[str, list[Record]]:
        """Check an order's authority: an empty refusal and perhaps a new epoch to persist.

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
        """Learn of an epoch; a higher one begins its own serials. The record of the highest one comes until it is on disk."""
        if epoch > self.epoch_max:
            self.epoch_max, self._serial = epoch, 0
        return [] if self._epoch_saved == self.epoch_max else [Record("epoch", 0, self.epoch_max)]

    def saved(self, records: Iterable[Record]) -> None:
        """These are on disk."""
        self._epoch_saved = max([self._epoch_saved, *(record.token for record in records if record.kind == "epoch")])

    # ---- what happens to attempts

    @property
    def accepting(self) -> bool:
        """True while new work may be taken."""
        return not (self.drained or self.stopping or self.row_closed)

    def _unsaved_record(self, key: AttemptKey) -> list[Record]:
        return [Record("seen", *key)] if key in self._unsaved else []

    def knows(self, key: AttemptKey) -> bool:
        """True while an attempt is in the table: accepted, and neither withdrawn nor forgotten."""
        return key in self._seen

    def withdraw(self, keys: Iterable[AttemptKey]) -> None:
        """The acceptance of these could not be written down, so it did not happen and nobody was told."""
        for key in keys:
            self._seen.pop(key, None)
            self._live.discard(key)
            self._unsaved.discard(key)

    def running(self, key: AttemptKey) -> None:
        """The attempt was handed to a guard; its acceptance is on disk, or on its way there with the answer waiting for it."""
        self._unsaved.discard(key)
        if self._seen.get(key) is AttemptState.ACCEPTED:
            self._seen[key] = AttemptState.RUNNING

    def finished(self, key: AttemptKey) -> None:
        """The attempt is over and its tree is empty: its slot is free."""
        self._seen[key] = AttemptState.FINISHED
        self._live.discard(key)
        self._unsaved.discard(key)

    def ends_of(self, not_held: Iterable[AttemptKey]) -> list[AttemptKey]:
        """Which of the attempts that PostgreSQL does not hold for us are live here and must be ended."""
        return [key for key in not_held if key in self._live]

    def forget_below(self, smallest_live: int) -> None:
        """Tokens below this are refused anyway, so seen and refused pairs below it need no memory. Never goes back."""
        if smallest_live <= self.smallest_live:
            return
        self.smallest_live = smallest_live
        old = [key for key in self._seen if key.token < smallest_live and key not in self._live]
        for key in old:
            del self._seen[key]
        self._tombstones = {key for key in self._tombstones if key.token >= smallest_live}

    @property
    def free_slots(self) -> int:
        """Attempts that could be accepted now."""
        return max(0, self.slots - len(self._live))

    @property
    def live(self) -> list[tuple[AttemptKey, AttemptState]]:
        """Attempts that are accepted and not over, oldest first."""
        return [(key, self._seen[key]) for key in sorted(self._live, key=lambda key: key.token)]
