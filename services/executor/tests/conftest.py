"""The executor's surroundings in tests: a coordinator and an archiver over real mTLS, and the executor as a real process."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import zstandard

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import Command, Spawn
from toban_executor.decide.log_block import LogBlock
from toban_executor.decide.models import AttemptEnd, StartOrder, StepOrder
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard import cgroup
from toban_executor.guard.clock import boottime, wall
from toban_executor.guard.launch import GuardSet, start_guards
from toban_executor.guard.protocol import Report, decode_report, encode_command
from toban_executor.guard.work_dir import payload_home
from toban_fencing.executor_lease import Instant
from toban_proto.v1 import common_pb2, executor_pb2, logs_pb2
from toban_proto.v1.coordinator_pb2_grpc import add_ExecutorGatewayServicer_to_server
from toban_proto.v1.executor_pb2_grpc import WorkerServiceStub
from toban_proto.v1.logs_pb2_grpc import LogIngestServicer, add_LogIngestServicer_to_server
from toban_runtime.clock import SystemClock
from toban_testing.executor_process import ExecutorProcess
from toban_testing.fake_coordinator import EPOCH, FakeCoordinator
from toban_transport.channel import ChannelPool
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

TRUST_DOMAIN = "toban.internal"
# A variable of this value is left out of the executor's environment.
UNSET = "<unset>"


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll what another process does."""
    end = boottime() + seconds
    while not (found := condition()):
        if boottime() > end:
            raise AssertionError("not in time")
        await asyncio.sleep(0.01)
    return found


class FakeArchiver(LogIngestServicer):
    """Keeps lines; can be told to fail."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int, int], dict[int, tuple[int, bytes, bool]]] = {}
        self.seals: dict[tuple[int, int], int] = {}
        # First number of the chunk that each line came in.
        self.places: dict[tuple[int, int], dict[int, int]] = {}
        self.tickets: list[bytes] = []
        self.chunks = 0
        # Lines that came in two different chunks, which an archiver would store twice.
        self.doubled = 0
        self.down = False
        # Refuse every chunk and seal with this code.
        self.refusing = ""
        self.refused = 0

    async def Append(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Store and acknowledge."""
        known = set()
        async for request in requests:
            if self.down:
                raise TobanError(ErrorCode.UNAVAILABLE, "down")
            for ticket in request.tickets:
                self.tickets.append(ticket.body)
                known.add(ticket.body)
            if self.refusing:
                yield self._refuse(request)
                continue
            for chunk in request.chunks:
                assert known, "a chunk without any ticket on this stream"
                self.chunks += 1
                self._store(chunk)
            for seal in request.seals:
                self.seals[(seal.run_id, seal.token)] = seal.last_seq
            yield logs_pb2.AppendResponse(request_id=request.request_id)

    def _refuse(self, request: Any) -> Any:
        places = [(one.run_id, one.token, one.seq_from) for one in request.chunks]
        places += [(one.run_id, one.token, 0) for one in request.seals]
        self.refused += len(places)
        refusals = [
            logs_pb2.ChunkRefusal(
                key=common_pb2.AttemptKey(run_id=run, token=token), seq_from=seq_from, code=self.refusing
            )
            for run, token, seq_from in places
        ]
        return logs_pb2.AppendResponse(request_id=request.request_id, refusals=refusals)

    def _store(self, chunk: Any) -> None:
        stored = self.lines.setdefault((chunk.run_id, chunk.token), {})
        data = logs_pb2.LogLines.FromString(zstandard.ZstdDecompressor().decompress(chunk.data))
        found = [(seq, text, one.partial) for one in data.blocks for seq, text in enumerate(_texts(one), start=one.seq)]
        assert {one.stream for one in data.blocks} == {chunk.stream}
        assert (len(found), found[0][0], found[-1][0]) == (chunk.line_count, chunk.seq_from, chunk.seq_to)
        places = self.places.setdefault((chunk.run_id, chunk.token), {})
        for seq, text, partial in found:
            self.doubled += places.setdefault(seq, chunk.seq_from) != chunk.seq_from
            stored[seq] = (chunk.stream, text, partial)

    def text(self, key: tuple[int, int]) -> list[bytes]:
        """The lines of an attempt in order."""
        return [line for _, (_, line, _) in sorted(self.lines.get(key, {}).items())]


def _texts(block: Any) -> list[bytes]:
    """The lines of a block without their newlines."""
    return [block.text] if block.partial else block.text[:-1].split(b"\n")


class World:
    """One executor process between a fake coordinator and a fake archiver."""

    order: Callable[..., Any]
    until: Callable[..., Any]

    def __init__(self, *, tls: Path, tmp: Path, coordinator: FakeCoordinator, archiver: FakeArchiver) -> None:
        self.coordinator = coordinator
        self.archiver = archiver
        self.tls = tls
        self.tmp = tmp
        self.serial = count(1)
        self.archiver_address = ""
        self.module = "toban_executor"
        self._servers: list[Any] = []
        self._pool = ChannelPool(tls=TlsFiles(tls / "coordinator"), trust_domain=TRUST_DOMAIN)
        self.executor: ExecutorProcess

    async def open(self, *, prefix: tuple[str, ...] = (), **more: str) -> None:
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
        self.executor.prefix, self.executor.module = prefix, self.module
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
        return list((await self.worker.StartJob(request, timeout=5)).results)

    async def outcome(self, number: int, seconds: float = 60.0) -> Any:
        """The outcome of the attempt that `order(number)` named."""
        key = (number, EPOCH | number)
        return await until(lambda: self.coordinator.outcomes.get(key), seconds)

    async def ended(self, number: int, seconds: float = 60.0) -> tuple[Any, str]:
        """Its outcome and its output."""
        outcome, key = await self.outcome(number, seconds), (number, EPOCH | number)
        await until(lambda: len(self.archiver.text(key)) == outcome.last_seq, 60)
        return outcome, b"\n".join(self.archiver.text(key)).decode()

    async def cancel(self, number: int, *, grace: float, mode: str = "kill") -> None:
        """Begin to end it."""
        key = common_pb2.AttemptKey(run_id=number, token=EPOCH | number)
        order = executor_pb2.CancelOrder(key=key, grace_seconds=grace, mode=mode)
        request = executor_pb2.CancelJobRequest(header=self.header(), orders=[order])
        assert [one.result for one in (await self.worker.CancelJob(request, timeout=5)).results] == ["cancelling"]


def order(number: int, *argv: str, **fields: Any) -> Any:
    """A start order for run `number` with one command."""
    fields = {"grace_seconds": 1.0, "attempt": 1, "job_name": "test", "allow_shell": True} | fields
    steps = fields.pop("steps", None) or [executor_pb2.Step(type="command", argv=argv, cancelable=True)]
    ticket = common_pb2.LogTicket(body=b"ticket-%d" % number, signature=b"s", certificate=b"c")
    return executor_pb2.StartOrder(
        key=common_pb2.AttemptKey(run_id=number, token=EPOCH | number), steps=steps, log_ticket=ticket, **fields
    )


World.order = staticmethod(order)
World.until = staticmethod(until)


@pytest.fixture
async def world(tls: Path, tmp_path: Path) -> AsyncIterator[World]:
    """An executor with a grant."""
    made = World(tls=tls, tmp=tmp_path, coordinator=FakeCoordinator(), archiver=FakeArchiver())
    try:
        await made.open()
        yield made
    finally:
        await made.close()


@pytest.fixture
def world_maker(tls: Path, tmp_path: Path) -> Callable[..., World]:
    """Makes a world with other settings; the test opens and closes it."""

    def make(*, lease_ms: int = 10_000) -> World:
        coordinator = FakeCoordinator(lease_ms=lease_ms)
        return World(tls=tls, tmp=tmp_path, coordinator=coordinator, archiver=FakeArchiver())

    return make


# Its own on this machine: guards end what is left of the incarnation that they are named after.
INCARNATION = f"test-incarnation-{os.urandom(6).hex()}"


class GuardHarness:
    """Guards as real processes, spoken to directly."""

    incarnation = INCARNATION

    def __init__(self, state: Path, slots: int = 1, warm: WarmLimits | None = None) -> None:
        self.state = state
        self.guards: GuardSet = start_guards(incarnation=INCARNATION, state_dir=state, slots=slots, warm=warm)
        self.blocks: list[LogBlock] = []
        # Reports of the guards.
        self.received = 0
        self.tokens = count(1)

    def spawn(self, *argv: str, slot: int = 0, lease: float = 60.0, **fields: Any) -> int:
        """Start a job; returns its token. `fields` are those of StartOrder, StepOrder(s) and Spawn; `inc`, `wall` as in the message."""
        token = next(self.tokens)
        deadline = Instant(boottime() + lease, fields.pop("wall", wall() + lease))
        incarnation = fields.pop("inc", INCARNATION)
        spawn = {"env": fields.pop("env", {"PATH": "/usr/bin:/bin"}), "lease_grace": fields.pop("lease_grace", 0.2)}
        steps = fields.pop("steps", (StepOrder(type="command", argv=argv),))
        order = StartOrder(key=AttemptKey(7, token), steps=steps, **{"grace_seconds": 0.5, **fields})
        command = Spawn(order=order, programs=("",) * len(steps), deadline=deadline, **spawn)
        self.send(command, slot=slot, incarnation=incarnation)
        return token

    def send(self, command: Command, *, slot: int = 0, acked: int = 0, incarnation: str = INCARNATION) -> None:
        """Any command."""
        self.guards.slots[slot].send(encode_command(command, incarnation=incarnation, acked=acked))

    def receive(self, kind: type[Any], slot: int = 0, seconds: float = 60.0) -> Any:
        """The next report of this kind; output on the way is kept in `blocks`."""
        self.guards.slots[slot].settimeout(seconds)
        while True:
            report = self._next(slot)
            if isinstance(report, kind):
                return report

    def receive_text(self, text: bytes, slot: int = 0) -> None:
        """Until the job has written this."""
        self.guards.slots[slot].settimeout(60)
        while text not in self.text:
            self._next(slot)

    def _next(self, slot: int) -> Report:
        data = self.guards.slots[slot].recv(1 << 18)
        assert data, "the guard has ended"
        self.received += 1
        report = decode_report(data)
        if isinstance(report, LogBlock):
            self.blocks.append(report)
        return report

    def run(self, *argv: str, **fields: Any) -> AttemptEnd:
        """Start a job and wait for its end."""
        self.spawn(*argv, **fields)
        return self.receive(AttemptEnd)

    @property
    def text(self) -> bytes:
        """All output so far, in order."""
        return b"".join(block.text for block in self.blocks)

    def close(self) -> None:
        """Let the guards go and wait for them."""
        self.guards.close()
        if self.guards.supervisor.poll() is None:
            os.kill(self.guards.supervisor.pid, signal.SIGCONT)
        self.guards.supervisor.wait(timeout=60)
        # Guards that were killed leave it; the next ones would not use it, and have no place for secrets.
        shutil.rmtree(payload_home(INCARNATION), ignore_errors=True)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[GuardHarness]:
    """A guard with one slot."""
    harness = GuardHarness(tmp_path)
    yield harness
    harness.close()


@pytest.fixture
def guard_harness() -> type[GuardHarness]:
    """Makes guards with more slots."""
    return GuardHarness
