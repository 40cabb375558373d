"""What an answer to a heartbeat means for the lease: only a grant counts, and from the send of its heartbeat (docs/fencing.md 3.5)."""

from types import SimpleNamespace
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.loops.heartbeat import Heartbeat, Surroundings
from toban_executor.ports import BeatAnswer
from toban_fencing.epoch_gate import Header, Record
from toban_fencing.order_book import OrderBook
from toban_testing.clock import FakeClock

KEY = AttemptKey(1, 101)


class Coordinator:
    """Answers a second after the send, as told; notes what it was sent."""

    def __init__(self, clock: FakeClock) -> None:
        self.answers: list[BeatAnswer | TobanError] = []
        self.beats: list[Any] = []
        self._clock = clock

    async def heartbeat(self, beat: Any) -> BeatAnswer:
        self.beats.append(beat)
        await self._clock.advance(1.0)
        answer = self.answers.pop(0)
        if isinstance(answer, TobanError):
            raise answer
        return answer


class World:
    """A heartbeat with its neighbours."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.coordinator = Coordinator(clock)
        self.granted: list[float] = []
        self.ended: list[tuple[Any, str]] = []
        self.posted: list[Record] = []
        self.book = OrderBook(incarnation="me", slots=2, unfit=lambda order: None)
        attempts = SimpleNamespace(
            book=self.book,
            progress=SimpleNamespace(unheard=lambda keys: {}, heard=lambda said: None),
            idle=SimpleNamespace(is_set=lambda: True),
            granted=lambda sent: self.granted.append(sent.boot),
            end=lambda keys, *, cause, reason, grace: self.ended.append((list(keys), cause)),
            end_all=lambda *, cause, reason, grace: self.ended.append(("all", cause)),
        )
        journal = SimpleNamespace(post_records=self.posted.extend, forget_below=lambda token: None)
        self.beat = Heartbeat(
            gateway=self.coordinator,  # type: ignore[arg-type]
            attempts=attempts,  # type: ignore[arg-type]
            journal=journal,  # type: ignore[arg-type]
            clock=clock,
            around=Surroundings(),
        )

    def says(self, granted: bool, grant_seq: int, **more: Any) -> None:
        self.coordinator.answers.append(
            BeatAnswer(**{"granted": granted, "grant_seq": grant_seq, "epoch": 5, "state": "on", **more})
        )


@pytest.fixture
def world(fake_clock: FakeClock) -> World:
    return World(fake_clock)


async def test_a_grant_counts_from_the_send(world: World) -> None:
    sent = world.clock.boottime()
    world.says(True, 1)
    assert await world.beat.run_once()
    assert world.granted == [sent]


async def test_what_is_not_granted_does_not_count(world: World) -> None:
    world.says(False, 7)
    world.says(False, 7)
    assert not await world.beat.run_once()
    assert world.granted == []
    assert [beat.echo for beat in world.coordinator.beats] == [0, 7], "the number is echoed at once"


async def test_the_grant_after_an_echo_counts_from_its_own_send(world: World) -> None:
    sent = world.clock.boottime()
    world.says(False, 7)
    world.says(True, 8)
    assert await world.beat.run_once()
    assert world.granted == [sent + 1.0]


async def test_no_answer_is_no_grant(world: World) -> None:
    world.coordinator.answers.append(TobanError(ErrorCode.UNAVAILABLE, "nobody"))
    with pytest.raises(TobanError):
        await world.beat.run_once()
    assert world.granted == []


async def test_the_echo_is_the_highest_number_heard(world: World) -> None:
    """An answer of a coordinator that was slow may come after a later one."""
    for seq in (5, 3, 6):
        world.says(True, seq)
        await world.beat.run_once()
    world.says(True, 7)
    await world.beat.run_once()
    assert [beat.echo for beat in world.coordinator.beats] == [0, 5, 5, 6]


async def test_what_postgresql_does_not_hold_is_ended(world: World) -> None:
    order = StartOrder(key=KEY, steps=(StepOrder(type="command", argv=("true",)),))
    world.book.start(Header(5, 1, "me"), [order], smallest_live=0, lease_valid=True)
    world.says(True, 1, not_held=[KEY, AttemptKey(9, 9)])
    await world.beat.run_once()
    assert world.ended == [([KEY], "not_held")]


@pytest.mark.parametrize(("state", "over"), [("cut", False), ("off", True)])
async def test_a_row_that_grants_no_more_ends_everything(world: World, state: str, over: bool) -> None:
    world.says(False, 1, state=state)
    await world.beat.run_once()
    assert ("all", "lease") in world.ended and bool(world.beat.over) is over
    assert not world.book.accepting and len(world.coordinator.beats) == 1


async def test_a_higher_epoch_is_learned_and_a_lower_one_is_not(world: World) -> None:
    for epoch in (9, 5):
        world.says(True, 1, epoch=epoch)
        await world.beat.run_once()
    assert world.book.epoch_max == 9 and world.posted == [Record("epoch", 0, 9)]
