"""Which orders are obeyed: tables, and the safety properties behind I3, I6 and Revoke."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from toban_domain.outcome import AttemptKey, AttemptState
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.order_book import OrderBook, Unfit

A, B, C = AttemptKey(1, 101), AttemptKey(2, 102), AttemptKey(3, 103)


@dataclass(frozen=True)
class StartOrder:
    key: AttemptKey
    fit: bool = True


@dataclass(frozen=True)
class CancelOrder:
    key: AttemptKey


def book(slots: int = 2) -> OrderBook[StartOrder]:
    return OrderBook(
        incarnation="me", slots=slots, unfit=lambda order: Unfit("UNSUPPORTED_STEP", "no") if not order.fit else None
    )


def order(key: AttemptKey, *, fit: bool = True) -> StartOrder:
    return StartOrder(key, fit)


def start(
    it: OrderBook[StartOrder], *orders: StartOrder, header: Header, live: int = 0, lease: bool = True
) -> list[str]:
    answers, accepted, records = it.start(header, orders, smallest_live=live, lease_valid=lease)
    it.saved(records)
    assert {one.key for one in accepted} <= {one.key for one in answers if not one.refusal}
    return [answer.refusal for answer in answers]


def test_a_new_epoch_comes_with_each_order_until_it_is_on_disk() -> None:
    it = book()
    _answers, _accepted, lost = it.start(Header(5, 1, "me"), [order(A)], smallest_live=0, lease_valid=True)
    _answers, _accepted, again = it.start(Header(5, 2, "me"), [order(B)], smallest_live=0, lease_valid=True)
    assert Record("epoch", 0, 5) in lost and Record("epoch", 0, 5) in again
    it.saved(again)
    assert it.revoke(Header(5, 3, "me"), [C]) == (["gone"], [Record("tombstone", *C)])


def test_acceptance_is_written_down_before_it_is_answered() -> None:
    answers, accepted, records = book().start(Header(5, 1, "me"), [order(A)], smallest_live=0, lease_valid=True)
    assert answers[0].state is AttemptState.ACCEPTED
    assert [one.key for one in accepted] == [A]
    assert records == [Record("epoch", 0, 5), Record("seen", *A)]


@pytest.mark.parametrize("lease", [True, False])
def test_a_refusal_is_written_down_before_it_is_answered(lease: bool) -> None:
    """Refused means gone, also for the next incarnation of this process's journal."""
    it = book(slots=0) if lease else book()
    answers, accepted, records = it.start(Header(5, 1, "me"), [order(A)], smallest_live=0, lease_valid=lease)
    assert answers[0].refusal and not accepted
    assert records == [Record("epoch", 0, 5), Record("tombstone", *A)]


@pytest.mark.seed(37)
@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        (Header(4, 9, "me"), "STALE_EPOCH"),
        (Header(5, 3, "me"), "STALE_EPOCH"),
        (Header(5, 2, "me"), "STALE_EPOCH"),
        (Header(6, 1, "other"), "WRONG_INCARNATION"),
        (Header(5, 4, "me"), ""),
        (Header(6, 1, "me"), ""),
    ],
)
def test_the_authority_of_a_header(header: Header, refusal: str) -> None:
    it = book()
    start(it, header=Header(5, 3, "me"))
    assert start(it, order(A), header=header) == [refusal]
    if refusal:
        # Not refused as an attempt: no tombstone, the right leader may send it.
        assert start(it, order(A), header=Header(7, 1, "me")) == [""]


@pytest.mark.seed(38)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_admitted_orders_strictly_grow(orders: list[tuple[int, int]]) -> None:
    it = book()
    admitted = [(epoch, serial) for epoch, serial in orders if not it.admit(Header(epoch, serial, "me"))[0]]
    assert admitted == sorted(set(admitted))


@pytest.mark.seed(30)
def test_an_epoch_that_a_heartbeat_brought_shuts_older_leaders_out() -> None:
    it = book()
    start(it, header=Header(5, 9, "me"))
    assert it.raise_epoch(7) == [Record("epoch", 0, 7)] and it.raise_epoch(6) == [Record("epoch", 0, 7)]
    assert it.admit(Header(6, 99, "me"))[0] == "STALE_EPOCH"
    assert it.admit(Header(7, 1, "me"))[0] == "", "a new epoch begins its own serials"


def test_every_refusal_is_for_ever() -> None:
    it = book(slots=1)
    it.row_closed = True
    assert start(it, order(A), header=Header(1, 1, "me")) == ["DRAINING"]
    it.row_closed = False
    assert start(it, order(A), order(B), header=Header(1, 2, "me")) == ["TOMBSTONE", ""]
    assert start(it, order(C), header=Header(1, 3, "me")) == ["NO_SLOT"]
    it.finished(B)
    assert start(it, order(C), order(B), header=Header(1, 4, "me")) == ["TOMBSTONE", ""]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [({"live": 102}, "TOKEN_TOO_OLD"), ({"lease": False}, "LEASE_EXPIRED"), ({}, "")],
)
def test_reasons_to_refuse(changes: dict[str, int], refusal: str) -> None:
    assert start(book(), order(A), header=Header(1, 1, "me"), **changes) == [refusal]
    assert start(book(), order(A, fit=False), header=Header(1, 1, "me")) == ["UNSUPPORTED_STEP"]


def test_a_pair_seen_before_is_answered_from_the_table_whatever_has_changed() -> None:
    """A refusal would say that it never runs here, and its run would go elsewhere beside it."""
    it = book(slots=1)
    assert start(it, order(A), header=Header(1, 1, "me")) == [""]
    it.running(A)
    it.row_closed = True
    for serial, state in ((2, AttemptState.RUNNING), (3, AttemptState.FINISHED)):
        answers, accepted, records = it.start(
            Header(1, serial, "me"), [order(A, fit=False)], smallest_live=0, lease_valid=False
        )
        assert (answers[0].refusal, answers[0].state, accepted) == ("", state, [])
        assert all(record.kind == "epoch" for record in records)
        it.finished(A)


def test_a_live_attempt_is_remembered_below_the_smallest_live_token() -> None:
    it = book()
    start(it, order(A), header=Header(1, 1, "me"))
    it.running(A)
    it.forget_below(C.token)
    assert it.live == [(A, AttemptState.RUNNING)] and it.live_of([A]) == [A]
    answers, accepted, _ = it.start(Header(1, 2, "me"), [order(A)], smallest_live=0, lease_valid=True)
    assert (answers[0].state, accepted) == (AttemptState.RUNNING, [])


@pytest.mark.parametrize("flag", ["out_of_reach", "unsupervised", "stopping", "row_closed"])
def test_each_reason_to_take_no_work(flag: str) -> None:
    it = book()
    setattr(it, flag, True)
    assert not it.accepting
    assert start(it, order(A), header=Header(1, 1, "me")) == ["DRAINING"]


def test_revoke_and_cancel_of_each_state() -> None:
    it = book()
    start(it, order(A), order(B), header=Header(1, 1, "me"))
    it.running(A)
    it.finished(B)
    assert it.revoke(Header(1, 2, "me"), [A, B, C]) == (["running", "finished", "gone"], [Record("tombstone", *C)])
    cancels = [CancelOrder(key) for key in (A, B, C)]
    results, effects, _ = it.cancel(Header(1, 3, "me"), cancels)
    assert (results, [one.key for one in effects]) == (["cancelling", "finished", "unknown"], [A])
    assert it.live == [(A, AttemptState.CANCELLING)]
    assert it.cancel(Header(1, 3, "me"), cancels[:1])[0] == ["STALE_EPOCH"]
    assert it.cancel(Header(1, 2, "me"), cancels[:1], relayed=True)[0] == ["cancelling"]
    assert it.cancel(Header(0, 9, "me"), cancels[:1], relayed=True)[0] == ["STALE_EPOCH"]


def test_memory_below_the_smallest_live_token_is_let_go_and_never_needed() -> None:
    it = book()
    start(it, order(A), header=Header(1, 1, "me"))
    it.finished(A)
    it.revoke(Header(1, 2, "me"), [B])
    it.forget_below(103)
    assert start(it, order(A), order(B), header=Header(1, 3, "me")) == ["TOKEN_TOO_OLD", "TOKEN_TOO_OLD"]
    it.forget_below(50)
    assert it.smallest_live == 103


def test_memory_beside_one_long_job_stays_small() -> None:
    it = book(slots=2)
    long = AttemptKey(1, 100)
    start(it, order(long), header=Header(1, 1, "me"))
    it.running(long)
    for number in range(2, 500):
        key = AttemptKey(number, 100 + number)
        answers, accepted, _ = it.start(
            Header(1, number, "me"), [order(key)], smallest_live=key.token, lease_valid=True
        )
        assert len(accepted) == 1 and not answers[0].refusal
        it.running(key)
        it.finished(key)
    assert len(it._table._seen) < 5
    # The long job is still known, and nothing that was forgotten starts again.
    assert start(it, order(long), order(AttemptKey(7, 107)), header=Header(1, 500, "me")) == ["", "TOKEN_TOO_OLD"]


def test_an_attempt_whose_outcome_is_not_accepted_is_remembered() -> None:
    unreported = [A]
    it: OrderBook[StartOrder] = OrderBook(
        incarnation="me", slots=4, unfit=lambda _order: None, unreported=lambda: unreported
    )
    start(it, order(A), header=Header(1, 1, "me"))
    it.finished(A)
    it.forget_below(C.token)
    assert it.revoke(Header(1, 2, "me"), [A])[0] == ["finished"]
    unreported.clear()
    it.forget_below(C.token + 1)
    assert it.revoke(Header(1, 3, "me"), [A])[0] == ["gone"]


def test_an_acceptance_that_was_not_written_down_did_not_happen() -> None:
    it = book(slots=1)
    start(it, order(A), header=Header(1, 1, "me"))
    it.withdraw([A])
    assert (it.live, it.free_slots) == ([], 1)


def test_what_the_cluster_does_not_hold() -> None:
    it = book()
    start(it, order(A), order(B), header=Header(1, 1, "me"))
    it.finished(B)
    assert it.live_of([A, B, C]) == [A]


class Orders(RuleBasedStateMachine):
    """Any sequence of orders, duplicates, ends, crashes of the process and turns of the lease."""

    keys = st.builds(AttemptKey, st.integers(1, 3), st.integers(1, 6))

    def __init__(self) -> None:
        super().__init__()
        self.it = book()
        self.starts: list[AttemptKey] = []
        self.promised: set[AttemptKey] = set()
        self.disk: list[Record] = []
        self.epoch, self.serial = 1, 0
        self.lives = 0

    def header(self) -> Header:
        self.serial += 1
        return Header(self.epoch, self.serial, self.it.incarnation)

    @rule(keys=st.lists(keys, max_size=4), lease=st.booleans(), live=st.integers(0, 4), stale=st.booleans())
    def start_some(self, keys: list[AttemptKey], lease: bool, live: int, stale: bool) -> None:
        header = Header(self.epoch - 1, 99, self.it.incarnation) if stale else self.header()
        answers, accepted, records = self.it.start(
            header, [order(key) for key in keys], smallest_live=live, lease_valid=lease
        )
        self.disk += records
        assert lease or not accepted
        assert not (stale and self.it.epoch_max >= self.epoch and accepted)
        for one in accepted:
            assert Record("seen", *one.key) in records
            assert one.key not in self.promised, "started after `gone` or a refusal"
            assert one.key.token >= self.it.smallest_live
            self.starts.append(one.key)
        for answer in answers:
            if answer.refusal not in ("", "STALE_EPOCH"):
                self.promised.add(answer.key)

    @rule(keys=st.lists(keys, max_size=3))
    def revoke(self, keys: list[AttemptKey]) -> None:
        results, records = self.it.revoke(self.header(), keys)
        self.disk += records
        self.promised |= {key for key, result in zip(keys, results, strict=True) if result == "gone"}
        running = {key for key, _ in self.it.live}
        assert not running & self.promised

    @rule()
    def finish_one(self) -> None:
        for key, _state in self.it.live[:1]:
            self.it.finished(key)

    @rule()
    def new_leader(self) -> None:
        self.epoch, self.serial = self.epoch + 1, 0

    @rule()
    def crash(self) -> None:
        """A new incarnation on the same disk; what was written is all that is left."""
        self.lives += 1
        smallest = self.it.smallest_live
        self.it = OrderBook(incarnation=f"me-{self.lives}", slots=2, unfit=lambda _order: None)
        self.it.restore(
            epoch_max=max((one.token for one in self.disk if one.kind == "epoch"), default=0),
            tombstones=[AttemptKey(one.run_id, one.token) for one in self.disk if one.kind == "tombstone"],
            finished=[AttemptKey(one.run_id, one.token) for one in self.disk if one.kind == "seen"],
        )
        self.it.forget_below(smallest)

    @invariant()
    def never_twice(self) -> None:
        assert len(self.starts) == len(set(self.starts))

    @invariant()
    def never_more_than_slots(self) -> None:
        assert len(self.it.live) <= self.it.slots


TestOrders = Orders.TestCase
TestOrders.settings = settings(stateful_step_count=30)
