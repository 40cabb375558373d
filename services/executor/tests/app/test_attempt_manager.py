"""Orders while the journal is slow or refuses: no acceptance is answered before it is on disk, and no slot leaks."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, AttemptState
from toban_executor.app.attempt_manager import AttemptManager, Launcher
from toban_executor.app.job_notes import JobNotes
from toban_executor.decide.models import CancelOrder, StartOrder, StepOrder
from toban_executor.ports.coordinator import Registered
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.executor_lease import Instant
from toban_fencing.order_book import OrderBook
from toban_testing.clock import FakeClock

A = AttemptKey(1, 101)
B = AttemptKey(2, 102)


REGISTERED = Registered(
    worker_id=1, incarnation_key="k", lease_ms=10_000, margin_ms=300, heartbeat_seconds=1.0, epoch=5
)


def order(key: AttemptKey) -> StartOrder:
    return StartOrder(key=key, steps=(StepOrder(type="command", argv=("true",)),))


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


class Reporter:
    def opened(self, order: StartOrder) -> None:
        """Ignored."""


class Collector:
    def opened(self, key: AttemptKey, ticket: bytes) -> None:
        """Ignored."""


class Bench:
    def __init__(self, *, slots: int = 1) -> None:
        self.journal, self.guards, clock = SlowJournal(), Slots(), FakeClock()
        fields: Any = {"journal": self.journal, "guards": self.guards, "reporter": Reporter(), "collector": Collector()}
        book = OrderBook(incarnation="me", slots=slots, unfit=lambda _order: None)
        launcher = Launcher(program=lambda _name: "", home="/")
        fields["notes"] = JobNotes(guards=self.guards, gateway=None, wake_heartbeat=lambda: None, clock=clock)  # type: ignore[arg-type]
        fields |= {"freeze_max": lambda: 300.0, "tries": lambda: (3, 0.3), "wake_heartbeat": lambda: None}
        self.attempts = AttemptManager(book=book, clock=clock, launcher=launcher, **fields)
        self.attempts.lease.begin(REGISTERED)
        self.attempts.lease.granted(Instant(clock.boottime(), clock.wall().timestamp()))
        self.serial = 0

    def header(self) -> Header:
        self.serial += 1
        return Header(5, self.serial, "me")

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
    it.attempts.book.finished(A)
    second = await it.ask(it.attempts.start(it.header(), [order(B)], 0))
    assert it.guards.spawned == [A, B] and not second.done()
    it.journal.writes[1].set_result(None)
    assert (await second)[0].refusal == ""
    assert it.guards.spawned == [A, B]


async def test_what_runs_already_is_answered_so_when_the_disk_begins_to_refuse() -> None:
    it = Bench()
    (await it.start()).cancel()
    it.journal.writes[0].set_result(None)
    it.attempts.book.finished(A)
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
