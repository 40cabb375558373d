"""A heartbeat with its neighbours replaced, for tests of what answers and leases mean."""

import math
from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from toban_domain.errors import TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.app.attempt_manager import AttemptManager, Launcher
from toban_executor.app.job_notes import JobNotes
from toban_executor.decide.start_queue import StartThrottle
from toban_executor.loops.heartbeat import (
    Heartbeat,
    Machine,
)
from toban_executor.ports.coordinator import HeartbeatAnswer, SignedEpoch
from toban_fencing.epoch_gate import Record
from toban_fencing.executor_lease import Instant
from toban_fencing.order_book import OrderBook
from toban_runtime.settings_watch import SettingsWatch
from toban_testing.clock import FakeClock


class Coordinator:
    """Answers a second after the send, as told; notes what it was sent."""

    def __init__(self, clock: FakeClock) -> None:
        self.answers: list[HeartbeatAnswer | TobanError] = []
        self.beats: list[Any] = []
        self._clock = clock

    async def heartbeat(self, beat: Any) -> HeartbeatAnswer:
        self.beats.append(beat)
        await self._clock.advance(1.0)
        answer = self.answers.pop(0)
        if isinstance(answer, TobanError):
            raise answer
        return answer


class Attempts(AttemptManager):
    """Records grants and ends."""

    def __init__(self, world: "World") -> None:
        journal = SimpleNamespace(
            post_signed_epoch=world.signed.append,
            post_records=world.posted.extend,
            forget_below=lambda token: None,
            record=AsyncMock(return_value=None),
        )
        fields: Any = {"guards": None, "reporter": world.reporter, "collector": world.collector, "journal": journal}
        launcher = Launcher(program=lambda _name: "", home="/")
        fields |= {"freeze_max": lambda: 300.0, "tries": lambda: (3, 0.3), "wake_heartbeat": lambda: None}
        unused: Any = None
        fields["notes"] = JobNotes(guards=unused, gateway=unused, wake_heartbeat=lambda: None, clock=world.clock)
        super().__init__(book=world.book, launcher=launcher, throttle=StartThrottle(1), clock=world.clock, **fields)
        self.world = world

    def granted(self, sent: Instant, named: Collection[AttemptKey] = ()) -> None:
        self.world.granted.append(sent.boot)
        self.world.done.append(("granted", list(named)))

    def enforce_lease(self, late: float, *, doubtful: bool) -> None:
        self.world.enforced.append(round(late, 3))
        self.world.doubts.append(doubtful)

    def end(self, keys: Iterable[AttemptKey], *, cause: str, reason: str, grace: float | None) -> None:
        self.world.ended.append((list(keys), cause))
        self.world.done.append(("ended", list(keys)))

    def end_all(
        self,
        *,
        cause: str,
        reason: str,
        grace: float | None,
        at_most: float = math.inf,
        but: Collection[AttemptKey] = (),
    ) -> float:
        self.world.ended.append(("all", cause))
        return 0.0


class World:
    """A heartbeat with its neighbours."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.coordinator = Coordinator(clock)
        self.granted: list[float] = []
        self.ended: list[tuple[Any, str]] = []
        self.posted: list[Record] = []
        self.signed: list[SignedEpoch] = []
        self.book = OrderBook(incarnation="me", slots=2, unfit=lambda order: None)
        # Ends and grants, in order.
        self.done: list[tuple[str, list[AttemptKey]]] = []
        self.enforced: list[float] = []
        self.doubts: list[bool] = []
        self.reporter = SimpleNamespace(unanswered=[], quarantined={})
        self.collector = SimpleNamespace(outcomes_pending=[])
        self.attempts = Attempts(self)
        coordinator: Any = self.coordinator
        self.beat = Heartbeat(
            gateway=coordinator,
            attempts=self.attempts,
            settings=SettingsWatch(source=coordinator, clock=clock),
            machine=Machine(),
            on_archivers=lambda _addresses: None,
            clock=clock,
        )

    def says(self, granted: bool, grant_seq: int, **more: Any) -> None:
        self.coordinator.answers.append(
            HeartbeatAnswer(**{"granted": granted, "grant_seq": grant_seq, "epoch": 5, "state": "on", **more})
        )


@pytest.fixture
def heartbeat_world(fake_clock: FakeClock) -> World:
    return World(fake_clock)
