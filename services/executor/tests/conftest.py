"""The executor's surroundings in tests: a coordinator and an archiver over real mTLS, and the executor as a real process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from toban_executor.guard import cgroup
from toban_executor.guard.clock import boottime
from toban_proto.v1 import common_pb2, executor_pb2
from toban_proto.v1.coordinator_pb2_grpc import add_ExecutorGatewayServicer_to_server
from toban_proto.v1.executor_pb2_grpc import WorkerServiceStub
from toban_proto.v1.logs_pb2_grpc import add_LogIngestServicer_to_server
from toban_runtime.clock import SystemClock
from toban_testing.executor_process import ExecutorProcess
from toban_testing.fake_archiver import FakeArchiver
from toban_testing.fake_coordinator import FakeCoordinator
from toban_testing.guard_harness import GuardHarness
from toban_testing.waiting import until
from toban_transport.channel import ChannelPool
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

TRUST_DOMAIN = "toban.internal"
# A variable of this value is left out of the executor's environment.
UNSET = "<unset>"
# Between the epochs of two tests that share an executor.
TERM = 16 << 27
# What a fake coordinator keeps from one of them to the next.
KEPT = ("registered", "beats", "address", "settings", "watched", "epoch", "lease_ms", "_grant_seq")


class World:
    """One executor process between a fake coordinator and a fake archiver."""

    until = staticmethod(until)

    def __init__(self, *, tls: Path, tmp: Path, coordinator: FakeCoordinator, archiver: FakeArchiver) -> None:
        self.coordinator = coordinator
        self.archiver = archiver
        self.tls = tls
        self.tmp = tmp
        self.serial = count(1)
        self.archiver_address = ""
        self.module = "toban_executor"
        # When the event loop of the fakes was last known to run: it runs within tests only.
        self.served_at = boottime()
        self._servers: list[Any] = []
        self._pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=TRUST_DOMAIN)
        self.executor: ExecutorProcess

    async def open(self, *, prefix: tuple[str, ...] = (), arguments: tuple[str, ...] = (), **more: str) -> None:
        """Start everything and wait for the first grant."""
        await self._serve("coordinator", add_ExecutorGatewayServicer_to_server, self.coordinator)
        self.archiver_address = await self._serve("log-archiver", add_LogIngestServicer_to_server, self.archiver)
        self.executor = ExecutorProcess(
            tls=self.tls,
            state=self.tmp / "state",
            coordinators=f"127.0.0.1:1,{self.coordinator.address}",
            log_archivers=self.archiver_address,
            **more,
        )
        self.executor.env = {name: value for name, value in self.executor.env.items() if value != UNSET}
        self.executor.prefix, self.executor.module, self.executor.arguments = prefix, self.module, arguments
        self.executor.start()
        await self.granted()

    async def granted(self, incarnations: int = 1) -> None:
        """Until this many incarnations have registered and the last one has had a grant and its server is known."""
        coordinator = self.coordinator
        # A process starts: on a busy machine that takes its time.
        await until(lambda: len(coordinator.registered) >= incarnations, 60)
        await until(
            lambda: [
                beat
                for beat in coordinator.beats
                if beat.incarnation == coordinator.registered[-1].incarnation and beat.echo > 0
            ],
            60,
        )

    async def coordinators_down(self) -> None:
        """The only coordinator ends: its address refuses connections."""
        await self._servers.pop(0).stop(0)

    async def coordinators_up(self) -> None:
        """It is back at the same address."""
        port = int(self.coordinator.address.rpartition(":")[2])
        await self._serve("coordinator", add_ExecutorGatewayServicer_to_server, self.coordinator, port)
        self._servers.insert(0, self._servers.pop())

    async def _serve(self, service: str, adder: Any, servicer: Any, port: int = 0) -> str:
        server = build_server(tls=TlsFiles(self.tls / service), trust_domain=TRUST_DOMAIN, clock=SystemClock())
        server.add(adder, servicer)
        address = f"127.0.0.1:{await server.start('127.0.0.1', port)}"
        servicer.address = address
        self._servers.append(server)
        return address

    async def close(self) -> None:
        """End everything."""
        self.executor.stop()
        await self._pool.close()
        for server in self._servers:
            await server.stop(0)
        await self._remove_groups()

    async def _remove_groups(self) -> None:
        """The cgroups of its incarnations, when what `stop` leaves to the slot supervisors has ended: it kills those who would remove them."""
        found = (cgroup.find_base(f"toban-{one.incarnation}", make=False) for one in self.coordinator.registered)
        left, end = {base for base in found if base is not None}, boottime() + 10
        while left and boottime() < end:
            for base in left:
                cgroup.remove(base)
            left = {base for base in left if base.exists()}
            await asyncio.sleep(0.01 if left else 0)

    @property
    def worker(self) -> Any:
        """Stub of the executor's service."""
        return WorkerServiceStub(self._pool.get(self.executor.address, "executor"))

    def header(self, epoch: int = 0, serial: int = 0, incarnation: str = "") -> Any:
        """A good header, unless told otherwise."""
        return executor_pb2.OrderHeader(
            leader_epoch=epoch or self.coordinator.epoch,
            serial=serial or next(self.serial),
            incarnation=incarnation or self.coordinator.registered[-1].incarnation,
        )

    async def start(self, *orders: Any, header: Any = None, smallest_live: int = 0) -> list[Any]:
        """StartJob."""
        request = executor_pb2.StartJobRequest(
            header=header or self.header(), orders=orders, smallest_live_token=smallest_live
        )
        return list((await self.worker.StartJob(request, timeout=60)).results)

    def key(self, number: int) -> tuple[int, int]:
        """Run and token of the attempt that `order(number)` names."""
        return number, self.coordinator.epoch | number

    def order(self, number: int, *argv: str, **fields: Any) -> Any:
        """A start order for run `number` with one command."""
        fields = {"grace_seconds": 1.0, "attempt": 1, "job_name": "test", "allow_shell": True} | fields
        body = json.dumps({"argv": argv})
        steps = fields.pop("steps", None) or [executor_pb2.Step(type="command", body_json=body, cancelable=True)]
        ticket = common_pb2.LogTicket(body=b"ticket-%d" % number, signature=b"s", certificate=b"c")
        run, token = self.key(number)
        key = common_pb2.AttemptKey(run_id=run, token=token)
        return executor_pb2.StartOrder(key=key, steps=steps, log_ticket=ticket, **fields)

    async def outcome(self, number: int, seconds: float = 60.0) -> Any:
        """The outcome of the attempt that `order(number)` named."""
        return await until(lambda: self.coordinator.outcomes.get(self.key(number)), seconds)

    async def ended(self, number: int, seconds: float = 60.0) -> tuple[Any, str]:
        """Its outcome and its output."""
        outcome, key = await self.outcome(number, seconds), self.key(number)
        await until(lambda: len(self.archiver.text(key)) == outcome.last_seq, 60)
        return outcome, b"\n".join(self.archiver.text(key)).decode()

    async def cancel(self, number: int, *, grace: float, mode: str = "kill") -> None:
        """Begin to end it."""
        run, token = self.key(number)
        await self._cancel(common_pb2.AttemptKey(run_id=run, token=token), grace=grace, mode=mode)

    async def _cancel(self, key: Any, *, grace: float, mode: str) -> None:
        order = executor_pb2.CancelOrder(key=key, grace_seconds=grace, mode=mode)
        request = executor_pb2.CancelJobRequest(header=self.header(), orders=[order])
        assert [one.result for one in (await self.worker.CancelJob(request, timeout=60)).results] == ["cancelling"]

    async def renew_lease(self) -> None:
        """Until the executor has the grant of a heartbeat sent after this call, if the fakes have not run for a quarter of its lease."""
        beats = self.coordinator.beats
        before = len(beats)
        if boottime() - self.served_at > self.coordinator.lease_ms / 1000 / 4:
            # An executor sends the second heartbeat after it has received the response to the first one.
            await until(lambda: len(beats) >= before + 2)

    async def next_term(self) -> None:
        """Between two tests: fakes as they were made, and an epoch whose tokens are above those of all tests before.

        A job that goes on is a mistake of the test: it would harm the next one. A test may use the epochs that follow its own.
        """
        coordinator, archiver = self.coordinator, self.archiver
        coordinator.epoch += TERM
        self._as_made(coordinator, "outcomes", *KEPT)
        coordinator.beats.clear()
        # The second one follows the answer that shows the epoch.
        try:
            await until(lambda: len(coordinator.beats) > 1 and not _unfinished(coordinator.beats[-1]))
        except TimeoutError:
            for held in coordinator.beats[-1].held:
                await self._cancel(held.key, grace=0, mode="kill")
            await until(lambda: not _unfinished(coordinator.beats[-1]))
            raise
        ended = [key for key, outcome in coordinator.outcomes.items() if outcome.last_seq]
        await until(lambda: all(key in archiver.seals for key in ended))
        self._as_made(coordinator, *KEPT)
        self._as_made(archiver)
        del coordinator.beats[:-1], coordinator.registered[:-1]
        self.executor.forget_log()
        self.served_at = boottime()

    @staticmethod
    def _as_made(fake: Any, *kept: str) -> None:
        vars(fake).update({name: value for name, value in vars(type(fake)()).items() if name not in kept})


def _unfinished(beat: Any) -> bool:
    return bool(beat.held or beat.unanswered)


@pytest.fixture
async def own_world(tls: Path, tmp_path: Path) -> AsyncIterator[World]:
    """An executor with a grant."""
    made = World(tls=tls, tmp=tmp_path, coordinator=FakeCoordinator(), archiver=FakeArchiver())
    try:
        await made.open()
        yield made
    finally:
        await made.close()


@pytest.fixture
def world(own_world: World) -> World:
    """In a module that overrides it with `shared_world`, tests that harm their executor use `own_world`."""
    return own_world


@pytest.fixture(scope="module")
def executor_variables() -> dict[str, str]:
    """Those of the executor that the tests of a module share; a module may override it."""
    return {}


@pytest.fixture(scope="module")
def executor_lease_ms() -> int:
    """Likewise its lease."""
    return 10_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _module_world(
    tls: Path, tmp_path_factory: pytest.TempPathFactory, executor_variables: dict[str, str], executor_lease_ms: int
) -> AsyncIterator[World]:
    coordinator = FakeCoordinator(lease_ms=executor_lease_ms)
    made = World(tls=tls, tmp=tmp_path_factory.mktemp("shared"), coordinator=coordinator, archiver=FakeArchiver())
    try:
        await made.open(**executor_variables)
        yield made
    finally:
        await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def shared_world(_module_world: World) -> AsyncIterator[World]:
    """The executor of the module, for tests that do it no harm; each is a term of its own."""
    await _module_world.renew_lease()
    yield _module_world
    await _module_world.next_term()


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that shares an executor runs on the loop that serves it."""
    if "shared_world" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture
def world_maker(tls: Path, tmp_path: Path) -> Callable[..., World]:
    """Makes a world with other settings; the test opens and closes it."""

    def make(*, lease_ms: int = 10_000) -> World:
        coordinator = FakeCoordinator(lease_ms=lease_ms)
        return World(tls=tls, tmp=tmp_path, coordinator=coordinator, archiver=FakeArchiver())

    return make


@pytest.fixture
def own_guard(tmp_path: Path) -> Iterator[GuardHarness]:
    """A guard with one slot."""
    harness = GuardHarness(tmp_path)
    yield harness
    harness.close()


@pytest.fixture
def guard(own_guard: GuardHarness) -> GuardHarness:
    """In a module that overrides it with `shared_guard`, tests that harm their guard use `own_guard`."""
    return own_guard


@pytest.fixture(scope="module")
def _module_guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardHarness]:
    harness = GuardHarness(tmp_path_factory.mktemp("shared-guard"))
    yield harness
    harness.close()


@pytest.fixture
def shared_guard(_module_guard: GuardHarness) -> Iterator[GuardHarness]:
    """The guard of the module, with an empty slot."""
    yield _module_guard
    _module_guard.next_test()


@pytest.fixture
def guard_harness() -> type[GuardHarness]:
    """Makes guards with more slots."""
    return GuardHarness
