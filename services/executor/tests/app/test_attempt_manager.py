"""Orders while the journal is slow or refuses: no acceptance is answered before it is on disk, and no slot leaks."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from toban_domain.epoch import Epoch
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, AttemptState, OutcomeKind
from toban_executor.app.attempt_manager import AttemptManager, Launcher
from toban_executor.app.job_notes import JobNotes
from toban_executor.app.lease_answers import LeaseAnswers
from toban_executor.decide.models import AttemptEnd, CancelOrder, Report, StartOrder, StepOrder
from toban_executor.decide.start_queue import STARTING_SECONDS, WAIT_SECONDS, StartThrottle
from toban_executor.ports.coordinator import Registered
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.executor_lease import Instant
from toban_fencing.order_book import OrderBook
from toban_testing.clock import FakeClock

A = AttemptKey(1, 101)
B = AttemptKey(2, 102)
EPOCH = Epoch(0, 5).pack()


REGISTERED = Registered(
    worker_id=1, incarnation_key="k", lease_ms=10_000, margin_ms=300, heartbeat_seconds=1.0, epoch=5
)


def order(key: AttemptKey, **given: Any) -> StartOrder:
    return StartOrder(key=key, steps=(StepOrder(type="command", argv=("true",)),), **given)


class SlowJournal:
    """Every write waits until the test says how it ends. Its disk has refused before, unless the test says else."""

    def __init__(self) -> None:
        self.writes: list[asyncio.Future[None]] = []
        self.writable = False

    async def record(self, records: Sequence[Record]) -> None:
        if records:
            self.writes.append(asyncio.get_running_loop().create_future())
            await self.writes[-1]


class Slots:
    """Records what is spawned and what is killed."""

    def __init__(self) -> None:
        self.spawned: list[AttemptKey] = []
        self.killed: list[AttemptKey] = []

    def spawn(self, order: StartOrder, **_more: Any) -> None:
        self.spawned.append(order.key)

    def cancel(self, order: CancelOrder) -> bool:
        self.killed.append(order.key)
        return order.key in self.spawned

    def kill(self, key: AttemptKey, **_more: Any) -> float | None:
        self.killed.append(key)
        return None


class Reporter:
    def opened(self, order: StartOrder) -> None:
        """Ignored."""


class Collector:
    """Keeps the outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[Report] = []

    def opened(self, key: AttemptKey, ticket: bytes) -> None:
        """Ignored."""

    def closed(self, key: AttemptKey, last_seq: int) -> None:
        """Ignored."""

    def submit_outcome(self, report: Report) -> None:
        self.outcomes.append(report)


class Bench:
    def __init__(self, *, slots: int = 1, most: int = 9) -> None:
        self.journal, self.guards, self.collector = SlowJournal(), Slots(), Collector()
        self.clock = clock = FakeClock()
        fields: Any = {"journal": self.journal, "guards": self.guards, "reporter": Reporter()}
        fields["collector"] = self.collector
        book = OrderBook(
            incarnation="me",
            slots=slots,
            unfit=lambda _order: None,
            may_wait=lambda order: order.may_wait,
            most_waiting=4,
        )
        launcher = Launcher(program=lambda _name: "", home="/")
        fields["notes"] = JobNotes(guards=self.guards, gateway=None, wake_heartbeat=lambda: None, clock=clock)  # type: ignore[arg-type]
        fields["throttle"] = StartThrottle(most)
        fields |= {"freeze_max": lambda: 300.0, "tries": lambda: (3, 0.3), "wake_heartbeat": lambda: None}
        self.attempts = AttemptManager(book=book, clock=clock, launcher=launcher, **fields)
        self.attempts.lease.begin(REGISTERED)
        self.attempts.lease.granted(Instant(clock.boottime(), clock.wall().timestamp()))
        self.serial = 0

    def header(self) -> Header:
        self.serial += 1
        return Header(EPOCH, self.serial, "me")

    async def ask(self, what: Any) -> "asyncio.Task[Any]":
        """Begin and let it come to its write."""
        task = asyncio.ensure_future(what)
        for _ in range(5):
            await asyncio.sleep(0)
        return task

    async def start(self) -> "asyncio.Task[Any]":
        return await self.ask(self.attempts.start(self.header(), [order(A)], 0))

    async def cancel(self) -> "asyncio.Task[Any]":
        order = CancelOrder(key=A, mode="kill", grace_seconds=None, reason="")
        return await self.ask(self.attempts.cancel(self.header(), [order]))

    async def revoke(self) -> "asyncio.Task[Any]":
        return await self.ask(self.attempts.revoke(self.header(), [A]))


def fail(write: "asyncio.Future[None]") -> None:
    write.set_exception(TobanError(ErrorCode.UNAVAILABLE, "no space left"))


async def test_a_second_order_waits_for_the_first_ones_record() -> None:
    it = Bench()
    first, again = await it.start(), await it.start()
    assert len(it.journal.writes) == 2
    it.journal.writes[0].set_result(None)
    assert (await first)[0].refusal == ""
    assert not again.done()
    it.journal.writes[1].set_result(None)
    assert (await again)[0].refusal == ""
    third = await it.start()
    assert third.done()
    assert it.guards.spawned == [A]


@pytest.mark.parametrize("second", ["start", "cancel", "revoke"])
async def test_no_answer_about_an_attempt_that_was_withdrawn(second: str) -> None:
    it = Bench()
    first = await it.start()
    other = await getattr(it, second)()
    fail(it.journal.writes[0])
    with pytest.raises(TobanError, match="no space left"):
        await first
    it.journal.writes[1].set_result(None)
    with pytest.raises(TobanError, match="could not persist"):
        await other
    assert (it.guards.spawned, it.attempts.book.free_slots, it.attempts.idle.is_set()) == ([], 1, True)
    again = await it.start()
    it.journal.writes[2].set_result(None)
    assert (await again)[0].refusal == ""
    assert (it.guards.spawned, it.guards.killed) == ([A], [])


async def test_a_caller_that_gives_up_does_not_leak_a_slot() -> None:
    it = Bench()
    first = await it.start()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    it.journal.writes[0].set_result(None)
    again = await it.start()
    assert (await again)[0].refusal == ""
    assert it.guards.spawned == [A]


async def test_a_caller_that_gives_up_before_the_disk_refuses() -> None:
    it = Bench()
    first = await it.start()
    first.cancel()
    fail(it.journal.writes[0])
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.sleep(0)
    assert it.attempts.book.free_slots == 1


async def test_a_cancel_of_an_attempt_on_its_way_to_the_disk_is_kept() -> None:
    it = Bench()
    first, canceling = await it.start(), await it.cancel()
    for write in it.journal.writes:
        write.set_result(None)
    assert await canceling == ["cancelling"]
    await first
    assert it.guards.killed == [A]


async def test_a_start_does_not_wait_for_a_disk_that_takes_writes_but_its_answer_does() -> None:
    it = Bench()
    first = await it.start()
    it.journal.writes[0].set_result(None)
    await first
    it.journal.writable = True
    it.attempts.ended(AttemptEnd(key=A, exit_code=0))
    second = await it.ask(it.attempts.start(it.header(), [order(B)], 0))
    assert it.guards.spawned == [A, B] and not second.done()
    it.journal.writes[1].set_result(None)
    assert (await second)[0].refusal == ""
    assert it.guards.spawned == [A, B]


async def test_what_runs_already_is_answered_so_when_the_disk_begins_to_refuse() -> None:
    it = Bench()
    (await it.start()).cancel()
    it.journal.writes[0].set_result(None)
    await it.ask(asyncio.sleep(0))
    assert it.guards.spawned == [A]
    it.attempts.ended(AttemptEnd(key=A, exit_code=0))
    it.journal.writable = True
    second = await it.ask(it.attempts.start(it.header(), [order(B)], 0))
    fail(it.journal.writes[1])
    assert (await second)[0].refusal == ""
    assert it.attempts.book.live == [(B, AttemptState.RUNNING)]


@pytest.mark.seed(38)
async def test_a_new_epoch_is_on_disk_before_its_order_is_obeyed() -> None:
    it = Bench()
    it.journal.writable = True
    first = await it.start()
    assert it.guards.spawned == [], "the first order of an epoch writes the epoch too"
    it.journal.writes[0].set_result(None)
    await first
    assert it.guards.spawned == [A]


async def test_no_order_of_a_new_epoch_is_obeyed_before_the_epoch_is_on_disk() -> None:
    it = Bench(slots=2)
    it.journal.writable = True
    first = await it.start()
    second = await it.ask(it.attempts.start(it.header(), [order(B)], 0))
    assert it.guards.spawned == [], "the second order waits for the epoch that the first one brought"
    fail(it.journal.writes[0])
    fail(it.journal.writes[1])
    for answer in (first, second):
        with pytest.raises(TobanError, match="no space left"):
            await answer
    third = await it.start()
    assert it.guards.spawned == [], "the epoch is still not on disk"
    it.journal.writes[2].set_result(None)
    await third
    assert it.guards.spawned == [A]


def key(run: int) -> AttemptKey:
    return AttemptKey(run, EPOCH + run)


async def waiting(*priorities: int) -> Bench:
    """An executor with one slot: run 1 has it, and a run with each of `priorities` waits."""
    it = Bench()
    orders = [order(key(1)), *(order(key(2 + i), may_wait=True, priority=p) for i, p in enumerate(priorities))]
    answers = await it.ask(it.attempts.start(it.header(), orders, 0))
    it.journal.writes[-1].set_result(None)
    assert [answer.refusal for answer in await answers] == [""] * len(orders)
    it.journal.writable = True
    assert it.guards.spawned == [key(1)]
    return it


def slot_is_free(it: Bench) -> None:
    it.attempts.ended(AttemptEnd(key=it.guards.spawned[-1], exit_code=0))


def returned(it: Bench) -> list[AttemptKey]:
    return [r.key for r in it.collector.outcomes if r.outcome is not None and r.outcome.never_started]


async def test_a_slot_that_becomes_free_starts_what_waits_the_highest_priority_first() -> None:
    it = await waiting(0, 7, 0)
    for _ in range(3):
        slot_is_free(it)
    assert it.guards.spawned == [key(1), key(3), key(2), key(4)]
    slot_is_free(it)
    assert it.attempts.idle.is_set() and not returned(it)


async def test_an_order_that_may_not_wait_is_refused_while_all_slots_are_in_use() -> None:
    it = await waiting(0)
    answers = await it.ask(it.attempts.start(it.header(), [order(key(9))], 0))
    it.journal.writes[-1].set_result(None)
    assert (await answers)[0].refusal == "NO_SLOT"


async def test_what_waits_for_too_long_is_returned() -> None:
    it = await waiting(0, 0)
    await it.clock.advance(WAIT_SECONDS - 0.01)
    assert returned(it) == []
    await it.clock.advance(0.02)
    assert returned(it) == [key(2), key(3)] and it.guards.spawned == [key(1)]
    assert [key for key, _ in it.attempts.book.live] == [key(1)]


async def test_nothing_that_waits_starts_once_the_lease_has_ended() -> None:
    it = await waiting(0)
    it.clock.jump_wall(60)
    slot_is_free(it)
    assert returned(it) == [key(2)] and it.guards.spawned == [key(1)]


async def test_nothing_that_waits_starts_in_the_term_of_another_leader() -> None:
    it = await waiting(0)
    it.attempts.book.raise_epoch(Epoch(0, 6).pack())
    slot_is_free(it)
    assert returned(it) == [key(2)] and it.guards.spawned == [key(1)]


@pytest.mark.parametrize("state", ["draining", "detached", "cut", "off"])
async def test_nothing_waits_at_an_executor_that_takes_no_work(state: str) -> None:
    it = await waiting(0)
    LeaseAnswers(attempts=it.attempts).apply_state(state, "let_finish")
    assert returned(it) == [key(2)] and key(2) not in it.guards.killed


async def test_a_cancel_ends_what_waits_without_a_start() -> None:
    it = await waiting(0)
    stop = CancelOrder(key=key(2), mode="kill", grace_seconds=0.0, reason="not wanted")
    assert await it.attempts.cancel(it.header(), [stop]) == ["cancelling"]
    [report] = it.collector.outcomes
    assert report.outcome is not None
    assert (report.key, report.outcome.kind, report.outcome.started_at) == (key(2), OutcomeKind.CANCELED, None)
    slot_is_free(it)
    assert it.guards.spawned == [key(1)] and it.guards.killed == []


async def test_what_waits_can_be_taken_back() -> None:
    it = await waiting(0, 0)
    assert await it.attempts.revoke(it.header(), [key(1), key(2)]) == ["running", "finished"]
    assert returned(it) == [key(2)]
    again = await it.attempts.start(it.header(), [order(key(2), may_wait=True)], 0)
    assert again[0].state is AttemptState.FINISHED
    slot_is_free(it)
    assert it.guards.spawned == [key(1), key(3)]


async def test_a_revoke_of_an_older_leader_takes_nothing_back() -> None:
    it = await waiting(0)
    assert await it.attempts.revoke(Header(EPOCH - 1, 1, "me"), [key(2)]) == ["STALE_EPOCH"]
    assert returned(it) == []


async def test_what_the_cluster_does_not_hold_here_does_not_start() -> None:
    it = await waiting(0)
    LeaseAnswers(attempts=it.attempts).end_not_held([key(2)])
    assert returned(it) == [key(2)] and it.guards.killed == []


async def test_nothing_that_waits_starts_once_the_incarnation_is_over() -> None:
    it = await waiting(0)
    it.attempts.lease.end("the coordinator does not know it")
    slot_is_free(it)
    assert returned(it) == [key(2)] and it.guards.spawned == [key(1)]


async def test_an_order_for_a_free_slot_is_not_returned_while_others_start() -> None:
    it = Bench(slots=400, most=1)
    orders = [order(key(n)) for n in range(1, 401)]
    answers = await it.ask(it.attempts.start(it.header(), orders, 0))
    it.journal.writes[-1].set_result(None)
    await answers
    await it.clock.advance(WAIT_SECONDS + 0.1)
    assert len(it.guards.spawned) < 400 and not returned(it)
    for _ in range(400):
        await it.clock.advance(STARTING_SECONDS * 1.5)
    assert len(it.guards.spawned) == 400 and not returned(it)


async def test_few_attempts_start_at_the_same_time() -> None:
    it = Bench(slots=4, most=2)
    answers = await it.ask(it.attempts.start(it.header(), [order(key(n)) for n in range(1, 5)], 0))
    it.journal.writes[-1].set_result(None)
    assert [answer.refusal for answer in await answers] == [""] * 4
    assert it.guards.spawned == [key(1), key(2)]
    it.attempts.ended(AttemptEnd(key=key(1), exit_code=0))
    assert it.guards.spawned == [key(1), key(2), key(3)], "one that has ended lets the next one start"
    await it.clock.advance(STARTING_SECONDS * 1.5)
    assert it.guards.spawned == [key(1), key(2), key(3), key(4)], "so does one that has run for a moment"
    assert not returned(it)
