"""Which orders an executor obeys (docs/fencing.md 3.9), without I/O.

    StartJob ── header ──▶ seen before? ──▶ refused before? ──▶ too old, no lease, draining, unfit, no slot? ──▶ accepted
                  │              │                 │                          │
          STALE_EPOCH /     answer from       TOMBSTONE          the tombstone first, then the reason
       WRONG_INCARNATION     the table

Invariants: a pair (run, token) is accepted at most once; a refused or revoked pair is never accepted afterwards; nothing is
accepted without a valid lease. What must be on disk before the answer leaves comes back as records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from toban_domain.outcome import AttemptKey, AttemptState
from toban_fencing.attempt_table import AttemptTable
from toban_fencing.epoch_gate import EpochGate, Header, Record


class Order(Protocol):
    """An order about one attempt."""

    @property
    def key(self) -> AttemptKey: ...


S = TypeVar("S", bound=Order)
C = TypeVar("C", bound=Order)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnswer:
    """The answer to a start order. An empty `refusal` means accepted, now or earlier."""

    key: AttemptKey
    refusal: str = ""
    message: str = ""
    state: AttemptState | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why an order is refused: a refusal code and one line for people."""

    refusal: str
    message: str


class OrderBook(Generic[S]):
    """An executor's memory of orders: the epoch gate, the attempts seen, and how many slots are in use."""

    def __init__(
        self,
        *,
        incarnation: str,
        slots: int,
        unfit: Callable[[S], Unfit | None],
        unreported: Callable[[], Iterable[AttemptKey]] = tuple,
        may_wait: Callable[[S], bool] = lambda _order: False,
        most_waiting: int = 0,
    ) -> None:
        """`unreported` are ended attempts whose outcome is not accepted: a question about one is still answered `finished`.

        While all slots are in use, `most_waiting` orders of which `may_wait` is true are accepted beyond them.
        """
        self.slots = slots
        # Independent reasons to accept no new work: this process ends, the executor's row is closed, a process of a job refused a signal, the
        # guard supervisor died.
        self.stopping = False
        self.row_closed = False
        self.out_of_reach = False
        self.unsupervised = False
        self._gate = EpochGate(incarnation=incarnation)
        self._table = AttemptTable()
        self._unfit = unfit
        self._unreported = unreported
        self._may_wait = may_wait
        self._most_waiting = most_waiting

    def restore(self, *, epoch_max: int, tombstones: Iterable[AttemptKey], finished: Iterable[AttemptKey]) -> None:
        """Load what the journal kept; attempts of earlier incarnations count as finished."""
        self._gate.restore(epoch_max)
        self._table.restore(tombstones=tombstones, finished=finished)

    # ---- orders

    def start(
        self, header: Header, orders: Sequence[S], *, smallest_live: int, lease_valid: bool
    ) -> tuple[list[StartAnswer], list[S], list[Record]]:
        """Answers in order, the orders to start, and what must be persisted first.

        An answer from the table whose own record is not on disk yet returns that record again, so that it waits for the disk too.
        """
        refusal, records = self._gate.admit(header)
        if refusal:
            return [StartAnswer(key=order.key, refusal=refusal) for order in orders], [], records
        self._table.forget_below(smallest_live, self._unreported)
        answers, accepted = [], []
        for order in orders:
            known = self._table.state(order.key)
            answer = self._answer(order, known, lease_valid=lease_valid)
            answers.append(answer)
            if answer.refusal:
                records += self._table.bury(order.key)
            elif known is None:
                records += self._table.accept(order.key)
                accepted.append(order)
            else:
                records += self._table.unsaved_record(order.key)
        return answers, accepted, records

    def _answer(self, order: S, known: AttemptState | None, *, lease_valid: bool) -> StartAnswer:
        if known is not None:
            return StartAnswer(key=order.key, state=known)
        refused = self._why_not(order, lease_valid=lease_valid)
        if refused is not None:
            return StartAnswer(key=order.key, refusal=refused.refusal, message=refused.message)
        return StartAnswer(key=order.key, state=AttemptState.ACCEPTED)

    def _why_not(self, order: S, *, lease_valid: bool) -> Unfit | None:
        if self._table.is_buried(order.key):
            return Unfit("TOMBSTONE", "this attempt was refused or revoked before")
        if order.key.token < self.smallest_live:
            return Unfit("TOKEN_TOO_OLD", f"below the smallest live token {self.smallest_live}")
        if not lease_valid:
            return Unfit("LEASE_EXPIRED", "the executor's lease has run out")
        if not self.accepting:
            return Unfit("DRAINING", "the executor takes no new work")
        if (unfit := self._unfit(order)) is not None:
            return unfit
        room = self.slots + (self._most_waiting if self._may_wait(order) else 0)
        if self._table.live_count >= room:
            return Unfit("NO_SLOT", f"all {self.slots} slots are in use")
        return None

    def cancel(
        self, header: Header, orders: Sequence[C], *, relayed: bool = False
    ) -> tuple[list[str], list[C], list[Record]]:
        """Results (cancelling, finished, unknown or a refusal), the cancels to carry out, and what to persist."""
        refusal, records = self._gate.admit(header, any_serial=relayed)
        if refusal:
            return [refusal] * len(orders), [], records
        results, effects = [], []
        for order in orders:
            state = self._table.state(order.key)
            if state is None:
                results.append("unknown")
            elif state is AttemptState.FINISHED:
                results.append("finished")
            else:
                self._table.cancelling(order.key)
                records += self._table.unsaved_record(order.key)
                results.append("cancelling")
                effects.append(order)
        return results, effects, records

    def revoke(
        self, header: Header, keys: Sequence[AttemptKey], *, relayed: bool = False
    ) -> tuple[list[str], list[Record]]:
        """Results (gone, running, finished or a refusal) and the tombstones behind each `gone`."""
        refusal, records = self._gate.admit(header, any_serial=relayed)
        if refusal:
            return [refusal] * len(keys), records
        results = []
        for key in keys:
            state = self._table.state(key)
            if state is not None:
                results.append("finished" if state is AttemptState.FINISHED else "running")
                records += self._table.unsaved_record(key)
            else:
                records += self._table.bury(key)
                results.append("gone")
        return results, records

    def admit(self, header: Header) -> tuple[str, list[Record]]:
        """The epoch gate alone, for an order that names no attempt: a refusal code (empty: admitted) and what to persist."""
        return self._gate.admit(header)

    def raise_epoch(self, epoch: int) -> list[Record]:
        """Take note of an epoch that a coordinator named; what to persist."""
        return self._gate.raise_epoch(epoch)

    def saved(self, records: Sequence[Record]) -> None:
        """These records are on disk."""
        self._gate.saved(records)
        self._table.saved(records)

    # ---- events of attempts

    def knows(self, key: AttemptKey) -> bool:
        """True while an attempt is in the table: accepted, and neither withdrawn nor forgotten."""
        return self._table.state(key) is not None

    def withdraw(self, keys: Iterable[AttemptKey]) -> None:
        """The acceptance of these could not be persisted, so it did not happen."""
        self._table.withdraw(keys)

    def running(self, key: AttemptKey) -> None:
        """A guard has the attempt."""
        self._table.running(key)

    def finished(self, key: AttemptKey) -> None:
        """The attempt has ended and its process tree is empty, or will never start: what it took here is free."""
        self._table.finished(key)

    def live_of(self, keys: Iterable[AttemptKey]) -> list[AttemptKey]:
        """Those of `keys` that are live here: to be ended when PostgreSQL does not hold them for this executor."""
        return self._table.live_of(keys)

    def forget_below(self, smallest_live: int) -> None:
        """Drop memory of attempts below the smallest token whose start is not confirmed, but for live and unreported ones.

        A smaller value than before changes nothing.
        """
        self._table.forget_below(smallest_live, self._unreported)

    # ---- state

    @property
    def incarnation(self) -> str:
        """The incarnation whose orders this book takes."""
        return self._gate.incarnation

    @property
    def epoch_max(self) -> int:
        """The highest epoch known."""
        return self._gate.epoch_max

    @property
    def smallest_live(self) -> int:
        """The smallest token, named by a coordinator, that may still be started here."""
        return self._table.smallest_live

    @property
    def retiring(self) -> bool:
        """True when this incarnation takes no new work any more, for a reason of its own."""
        return self.stopping or self.out_of_reach or self.unsupervised

    @property
    def accepting(self) -> bool:
        """True while new work may be taken."""
        return not (self.retiring or self.row_closed)

    @property
    def free_slots(self) -> int:
        """Attempts that could be accepted now."""
        return max(0, self.slots - self._table.live_count)

    @property
    def live(self) -> list[tuple[AttemptKey, AttemptState]]:
        """Attempts that are accepted and not finished, oldest first."""
        return self._table.live
