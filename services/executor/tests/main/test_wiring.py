"""One incarnation within the test's process: everything that touches the outside comes from the factories of the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import Settings
from toban_executor.config import ExecutorConfig
from toban_executor.decide.isolation import Isolation
from toban_executor.decide.models import AttemptEnd, Report
from toban_executor.guard.witness import make_descriptor
from toban_executor.main.own_steps import own_steps
from toban_executor.main.wiring import Factories, build
from toban_executor.ports.coordinator import HeartbeatAnswer, HeartbeatRequest, Identity, Registered, ReportAnswer
from toban_executor.ports.guards import Prepared
from toban_proto.v1 import executor_pb2
from toban_runtime.backoff import Backoff
from toban_runtime.ids import SeededIdSource
from toban_runtime.lifecycle import Stop
from toban_testing.clock import FakeClock

EPOCH = 5
SLOTS = 2


class SteppingClock(FakeClock):
    """Each sleep moves the clock: a loop's rest of a tick may be less than the precision of its numbers."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(max(seconds, 1e-6))


class Coordinator:
    """Grants each heartbeat and accepts each report; `refusals` registrations fail before one succeeds."""

    def __init__(self, *, refusals: int = 0, **_more: Any) -> None:
        self.refusals = refusals
        self.registered: list[Identity] = []
        self.heartbeats: list[HeartbeatRequest] = []
        self.reports: list[Report] = []

    async def register(
        self, identity: Identity, _epoch_max: int, _reports: Sequence[Report], _signed: object
    ) -> Registered:
        if self.refusals:
            self.refusals -= 1
            raise TobanError(ErrorCode.UNAVAILABLE, "starting")
        self.registered.append(identity)
        return Registered(
            worker_id=1, incarnation_key="k", lease_ms=10_000, margin_ms=300, heartbeat_seconds=1.0, epoch=EPOCH
        )

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        self.heartbeats.append(request)
        return HeartbeatAnswer(granted=True, grant_seq=len(self.heartbeats), epoch=EPOCH, state="on")

    async def report(self, reports: Sequence[Report]) -> list[Any]:
        self.reports += reports
        return [ReportAnswer(report.key, report.seq, "accepted") for report in reports]

    async def watch_settings(self, _known_version: int) -> AsyncIterator[Settings]:
        yield Settings({"heartbeat_interval_seconds": 0.5}, version=9)
        await asyncio.Event().wait()


class Guards:
    """Guards that run nothing."""

    def __init__(self, **_more: Any) -> None:
        self.listener: Any = None
        self.spawned: list[Any] = []

    def listen(self, listener: Any) -> None:
        self.listener = listener

    def spawn(self, order: Any, **_more: Any) -> None:
        self.spawned.append(order.key)

    def push_deadline(self, _deadline: Any, **_more: Any) -> None: ...
    def kill(self, _key: Any, **_more: Any) -> None: ...
    def hold_output(self, _hold: bool) -> None: ...
    def ack(self, _offsets: Any) -> None: ...
    def stop_reading(self) -> None: ...

    def ack_offsets(self) -> dict[str, int]:
        return {}

    async def close(self, timeout: float) -> bool:
        return True


class Server:
    """A gRPC server without a port; `service` is what it serves."""

    service: Any = None

    def add(self, _adder: Any, service: Any) -> None:
        self.service = service

    async def start(self, _host: str, _port: int) -> int:
        return 7000

    async def stop(self, _grace: float = 0) -> None: ...


class Bench:
    """An incarnation that has not begun."""

    def __init__(self, *, tls: Path, state: Path, refusals: int = 0) -> None:
        self.clock, self.stop = SteppingClock(), Stop()
        self.coordinator, self.guards, self.server = Coordinator(refusals=refusals), Guards(), Server()
        self.health: Any = None
        state.mkdir(exist_ok=True)
        config = ExecutorConfig(state_dir=state, coordinators=["c:1"], tls_dir=tls / "executor", node_id="n")
        guard_set: Any = SimpleNamespace(incarnation="i", slots=[None] * SLOTS, credentials=make_descriptor())
        prepared = Prepared(
            state_dir=state,
            guards=guard_set,
            settled={},
            most_slots=SLOTS,
            isolation=Isolation("isolated", ("uids 1-2",)),
        )

        async def nothing() -> None: ...

        def admin(_host: str, _port: int, document: Any, **_more: Any) -> Any:
            self.health = document
            return SimpleNamespace(start=lambda: self.server.start("", 0), stop=nothing)

        fakes: dict[str, Any] = {
            "channels": lambda **_more: SimpleNamespace(close=nothing),
            "server": lambda **_more: self.server,
            "admin": admin,
            "gateway": lambda **_more: self.coordinator,
            "guards": lambda **_more: self.guards,
        }
        backoff = Backoff(base=1.0, cap=1.0, jitter=0.0)
        factories = Factories(clock=self.clock, ids=SeededIdSource(seed=1), backoff=backoff, **fakes)
        self.incarnation = build(own_steps(config, prepared, stopped=lambda: False), factories)

    async def until(self, condition: Any) -> None:
        """Move the clock until it holds; the journal's thread needs real time."""
        async with asyncio.timeout(60):
            while not condition():
                await self.clock.advance(0.05)
                await asyncio.sleep(0.001)

    async def start(self, token: int) -> Any:
        header = executor_pb2.OrderHeader(leader_epoch=EPOCH, serial=token, incarnation="i")
        order = executor_pb2.StartOrder(steps=[executor_pb2.Step(type="command", argv=["true"])])
        order.key.run_id, order.key.token = 1, token
        request = executor_pb2.StartJobRequest(header=header, orders=[order])
        [answer] = (await self.server.service.StartJob(request, None)).results
        return answer


@pytest.fixture
def bench(tls: Path, tmp_path: Path) -> Bench:
    return Bench(tls=tls, state=tmp_path / "state")


@pytest.mark.seed(79)
async def test_from_registration_over_an_outcome_to_the_stop(bench: Bench) -> None:
    life = asyncio.create_task(bench.incarnation.run(bench.stop))
    await bench.until(lambda: bench.health()["checks"]["lease"]["status"] == "ok")
    [identity] = bench.coordinator.registered
    assert (identity.instance, identity.ready_slots) == (SeededIdSource(seed=1).uuid(), SLOTS)
    assert identity.isolation == Isolation("isolated", ("uids 1-2",))
    assert (await bench.start(101)).accepted
    [key] = bench.guards.spawned
    assert bench.health()["checks"]["slots"]["value"] == "1/2"
    bench.guards.listener.ended(AttemptEnd(key=key, exit_code=0, finished_ns=10**18))
    await bench.until(lambda: [report.key for report in bench.coordinator.reports] == [key])
    bench.stop.request("test")
    await bench.until(life.done)
    assert life.result() is False
    assert bench.coordinator.heartbeats[-1].stopped
    assert [beat.settings_version for beat in bench.coordinator.heartbeats][-1] == 9


async def test_a_guard_that_ends_asks_for_the_next_incarnation(bench: Bench) -> None:
    life = asyncio.create_task(bench.incarnation.run(bench.stop))
    await bench.until(lambda: bench.coordinator.heartbeats)
    bench.guards.listener.guards_gone()
    await bench.until(life.done)
    assert life.result() is True
    assert not any(beat.stopped for beat in bench.coordinator.heartbeats)


async def test_registration_is_repeated_by_the_backoff(tls: Path, tmp_path: Path) -> None:
    bench = Bench(tls=tls, state=tmp_path / "state", refusals=3)
    life, began = asyncio.create_task(bench.incarnation.run(bench.stop)), bench.clock.monotonic()
    await bench.until(lambda: bench.coordinator.registered)
    assert bench.clock.monotonic() - began >= 3.0
    bench.stop.request("test")
    await bench.until(life.done)
