"""How often heartbeats are sent, and what an answer means: only a grant counts, from its send on (docs/fencing.md 3.5)."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.settings import SETTINGS
from toban_executor.adapters.coordinator_client import call_seconds
from toban_executor.decide.guard_types import FreezeTurn
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.loops.heartbeat import (
    MOST_NAMES,
    LeaseWatchdog,
    heartbeat_seconds,
)
from toban_executor.ports.coordinator import HeartbeatRequest, Registered, RelayedOrder, SignedEpoch
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.executor_lease import Instant

KEY = AttemptKey(1, 101)
REGISTERED = Registered(
    worker_id=1, incarnation_key="k", lease_ms=10_000, margin_ms=300, heartbeat_seconds=2.0, epoch=5
)


@pytest.fixture
def world(heartbeat_world: Any) -> Any:
    return heartbeat_world


async def test_a_heartbeat_names_every_attempt_whose_outcome_is_not_accepted(world: Any) -> None:
    waiting, reported, refused = (AttemptKey(number, 100 + number) for number in (1, 2, 3))
    world.collector.outcomes_pending.append(waiting)
    world.reporter.unanswered.append(reported)
    world.reporter.quarantined[refused] = "no partition"
    world.book.out_of_reach = True
    world.says(True, 1)
    await world.beat.run_once()
    [beat] = world.coordinator.beats
    assert (beat.names_all, beat.unanswered, beat.quarantined) == (True, [waiting, reported], {refused: "no partition"})
    assert (beat.quarantined_outcomes, beat.unreachable) == (1, True), "for doctor"


async def test_a_heartbeat_that_cannot_name_all_names_none(world: Any) -> None:
    world.reporter.unanswered += [AttemptKey(number, number) for number in range(1, MOST_NAMES + 2)]
    world.says(True, 1)
    await world.beat.run_once()
    [beat] = world.coordinator.beats
    assert (beat.names_all, beat.unanswered, beat.quarantined) == (False, (), {})


async def test_a_grant_counts_from_the_send(world: Any) -> None:
    sent = world.clock.boottime()
    world.says(True, 1)
    assert await world.beat.run_once()
    assert world.granted == [sent]


async def test_what_is_not_granted_does_not_count(world: Any) -> None:
    world.says(False, 7)
    world.says(False, 7)
    assert not await world.beat.run_once()
    assert world.granted == []
    assert [beat.echo for beat in world.coordinator.beats] == [0, 7], "the number is echoed at once"


async def test_the_grant_after_an_echo_counts_from_its_own_send(world: Any) -> None:
    sent = world.clock.boottime()
    world.says(False, 7)
    world.says(True, 8)
    assert await world.beat.run_once()
    assert world.granted == [sent + 1.0]


async def test_no_answer_is_no_grant(world: Any) -> None:
    world.coordinator.answers.append(TobanError(ErrorCode.UNAVAILABLE, "silent"))
    with pytest.raises(TobanError):
        await world.beat.run_once()
    assert world.granted == []


async def test_the_echo_is_the_highest_number_received(world: Any) -> None:
    """An answer of a coordinator that was slow may come after a later one."""
    for seq in (5, 3, 6):
        world.says(True, seq)
        await world.beat.run_once()
    world.says(True, 7)
    await world.beat.run_once()
    assert [beat.echo for beat in world.coordinator.beats] == [0, 5, 5, 6]


async def test_what_postgresql_does_not_hold_is_ended(world: Any) -> None:
    order = StartOrder(key=KEY, steps=(StepOrder(type="command", argv=("true",)),))
    world.book.start(Header(5, 1, "me"), [order], smallest_live=0, lease_valid=True)
    world.says(True, 1, not_held=[KEY, AttemptKey(9, 9)])
    await world.beat.run_once()
    assert world.ended == [([KEY], "not_held")]


@pytest.mark.parametrize(("state", "over"), [("cut", False), ("off", True)])
async def test_a_row_that_grants_no_more_ends_everything(world: Any, state: str, over: bool) -> None:
    world.says(False, 1, state=state)
    await world.beat.run_once()
    assert ("all", "lease") in world.ended and bool(world.attempts.lease.over) is over
    assert not world.book.accepting and len(world.coordinator.beats) == 1


async def test_a_higher_epoch_is_learned_and_a_lower_one_is_not(world: Any) -> None:
    for epoch in (9, 5):
        world.says(True, 1, epoch=epoch)
        await world.beat.run_once()
    assert world.book.epoch_max == 9 and world.posted == [Record("epoch", 0, 9)]


def signed(epoch: int, grant_seq: int, incarnation: str = "i") -> SignedEpoch:
    return SignedEpoch(epoch=epoch, incarnation=incarnation, grant_seq=grant_seq, message=b"%d" % grant_seq)


async def test_the_newest_signed_epoch_is_presented_and_a_lower_one_never(world: Any) -> None:
    """After a restore of PostgreSQL the higher one is what proves it."""
    given = [signed(9, 1), signed(9, 2), signed(5, 3), None, signed(9, 1, "before"), signed(10, 1)]
    for answer in given:
        world.says(True, 1, epoch=1, signed_epoch=answer)
        await world.beat.run_once()
    shown = [beat.signed_epoch for beat in world.coordinator.beats]
    assert shown == [None, given[0], given[1], given[1], given[1], given[4]]
    assert world.attempts.epochs.signed == given[5]


async def test_a_signed_epoch_is_written_when_the_epoch_is_new_and_else_once_a_minute(world: Any) -> None:
    for number in range(1, 71):
        world.says(True, number, epoch=1, signed_epoch=signed(9, number))
        await world.beat.run_once()
    assert [one.grant_seq for one in world.signed] == [1, 61]


async def test_the_last_heartbeat_carries_the_results_of_relayed_orders(world: Any) -> None:
    revoke = RelayedOrder(order_id=7, header=Header(1, 1, "other"), revoke=(KEY,))
    world.says(True, 1, orders=[revoke])
    await world.beat.run_once()
    world.says(False, 1)
    await world.beat.send_stopped()
    last: HeartbeatRequest = world.coordinator.beats[-1]
    assert last.stopped and list(last.outcomes) == [(7, "WRONG_INCARNATION")]


async def test_a_relayed_order_that_waits_for_the_disk_costs_no_grant(world: Any) -> None:
    """A revoke is answered when it is in the journal; the lease must not wait for that."""
    disk = asyncio.Event()
    journal: Any = world.attempts._journal

    async def record(_records: Any) -> None:
        await disk.wait()

    journal.record = AsyncMock(side_effect=record)
    revoke = RelayedOrder(order_id=7, header=Header(5, 1, "me"), revoke=(KEY,))
    for number in (1, 2, 3):
        world.says(True, number, orders=[revoke])
        async with asyncio.timeout(60):
            assert await world.beat.run_once()
    assert len(world.granted) == 3
    assert [list(beat.outcomes) for beat in world.coordinator.beats] == [[], [], []]
    assert journal.record.await_count == 1, "the order is carried out once, however often it comes"
    disk.set()
    await world.beat.orders_carried_out(60.0)
    world.says(True, 4)
    await world.beat.run_once()
    assert list(world.coordinator.beats[-1].outcomes) == [(7, "gone")]


async def test_only_a_grant_that_named_it_lets_a_frozen_job_go_on(world: Any) -> None:
    """Its answer would have listed the attempt if the cluster did not hold it."""
    world.attempts.lease_end.opened(KEY, "freeze")
    world.book.start(Header(1, 1, "me"), [StartOrder(key=KEY)], smallest_live=0, lease_valid=True)
    world.says(True, 1)
    await world.beat.run_once()
    world.attempts.freeze_turned(FreezeTurn(key=KEY, frozen=True, seconds=0.0, at_ns=1))
    world.says(True, 2)
    await world.beat.run_once()
    assert world.done == [("ended", []), ("granted", []), ("ended", []), ("granted", [KEY])]
    [note] = world.coordinator.beats[-1].freezes.values()
    assert (note.turns, note.frozen) == (1, True)


async def test_what_is_not_held_is_ended_before_anything_goes_on(world: Any) -> None:
    world.book.start(Header(1, 1, "me"), [StartOrder(key=KEY)], smallest_live=0, lease_valid=True)
    world.says(True, 1, not_held=[KEY])
    await world.beat.run_once()
    assert world.done == [("ended", [KEY]), ("granted", [])]


async def test_the_interval_is_the_coordinators_until_settings_arrive(world: Any) -> None:
    world.attempts.lease.begin(REGISTERED)
    assert world.beat.interval_seconds() == 2.0


def test_the_setting_counts_while_the_lease_is_long_enough() -> None:
    assert heartbeat_seconds(1.0, lease_ms=10_000, margin_ms=300) == 1.0
    assert heartbeat_seconds(60.0, lease_ms=3_300, margin_ms=300) == 1.0


@given(st.floats(0.2, 60), st.integers(2_000, 600_000))
def test_three_heartbeats_fit_into_every_lease(wanted: float, lease_ms: int) -> None:
    seconds = heartbeat_seconds(wanted, lease_ms=lease_ms, margin_ms=300)
    assert 0 < seconds <= wanted
    assert 3 * seconds <= (lease_ms - 300) / 1000 + 1e-9


@given(st.floats(0.2, 60), st.integers(int(1000 * SETTINGS["executor_lease_seconds"].minimum), 600_000))
def test_two_frozen_coordinators_cost_no_lease(wanted: float, lease_ms: int) -> None:
    """The worst moment: they freeze right after a grant, and the third one answers."""
    call = call_seconds(lease_ms=lease_ms, margin_ms=300)
    hold = (lease_ms - 300) / 1000
    assert 0.5 <= call <= 1.0, "long enough for an answer"
    assert heartbeat_seconds(wanted, lease_ms=lease_ms, margin_ms=300) + 2 * call <= hold - call / 2


async def test_each_heartbeat_presents_the_nonce_of_the_last_grant(world: Any) -> None:
    for granted, nonce in ((True, 71), (False, 0), (True, 0), (True, 72), (True, 73)):
        world.says(granted, 1, nonce=nonce)
    for _ in range(4):
        await world.beat.run_once()
    # A refusal, and a coordinator of an earlier release, which gives none, leave it as it is.
    assert [beat.nonce for beat in world.coordinator.beats] == [0, 71, 71, 71, 72]


async def test_a_superseded_copy_ends_with_its_lease_also_with_frozen_jobs(world: Any) -> None:
    watchdog, attempts = LeaseWatchdog(attempts=world.attempts, clock=world.clock), world.attempts
    attempts.lease.begin(REGISTERED)
    attempts.lease.granted(Instant(world.clock.boottime(), world.clock.wall().timestamp()))
    world.says(True, 1, nonce=71)
    await world.beat.run_once()
    for _ in range(3):
        world.says(False, 9, superseded=True)
    world.says(True, 9, nonce=99)
    await world.beat.run_once()
    # The answer that brought 71 may have been overtaken: the one before is tried as well.
    assert [beat.nonce for beat in world.coordinator.beats[1:]] == [71, 0]
    assert attempts.lease.superseded
    await watchdog.run_once()
    assert not attempts.lease.over, "its lease has not ended"
    await world.clock.advance(20)
    await watchdog.run_once()
    assert "another copy" in attempts.lease.over
