"""Items a second through one external worker over mTLS, durable: claims and completes in batches, on a stack of its own.

Usage: scripts/bench external_items, or external_items.py [ITEMS] [BATCH]; prints two JSON lines. `backlog`: from the first Claim of ITEMS offered
steps to the answer of the last Complete. `flow`: the same with a worker that waits already, from the first enqueue on.
PostgreSQL with fsync, Redis, two coordinators, an executor and the worker run on this machine.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator

from bench_stack import whole_stack

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import TRUST_DOMAIN, sql
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.tls import TlsFiles

# Claims that wait at the same time, each with its own batch to complete.
LANES = 3
CHUNK = 500
JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "bench-external"},
    "spec": {"steps": [{"id": "main", "type": "external", "worker_type": "bench", "lock_ttl_seconds": 60}]},
}
_OFFERED = "SELECT count(*) AS n FROM scheduler.runs_live WHERE state = 'WAITING_WORKER'"


class Worker:
    """One process that claims, does nothing, and completes."""

    def __init__(self, stub: rpc.ExternalWorkStub, *, batch: int = 250) -> None:
        self._stub = stub
        self._batch = batch
        self.done = 0
        self.all_done = asyncio.Event()

    async def lane(self, items: int) -> None:
        """Claims and completes until so many items are done by all lanes."""
        claim = pb.ClaimRequest(worker="bench", worker_type="bench", limit=self._batch, wait_seconds=5.0)
        while self.done < items:
            steps = (await unary(self._stub.Claim, claim, timeout=10.0)).steps
            if not steps:
                continue
            ended = [pb.CompletedStep(key=step.key, result_json='{"ok": true}') for step in steps]
            answers = (
                await unary(self._stub.Complete, pb.CompleteRequest(worker="bench", steps=ended), timeout=10.0)
            ).answers
            assert all(answer.result == "accepted" for answer in answers)
            self.done += len(answers)
        self.all_done.set()


def enqueue(admin: AdminClient, items: int) -> None:
    """Starts so many runs."""
    for first in range(0, items, CHUNK):
        admin.start("bench-external", count=min(CHUNK, items - first))


def until_offered(stack: Stack, items: int) -> None:
    """Waits until so many steps can be claimed."""
    while sql(stack, _OFFERED)[0]["n"] < items:
        time.sleep(0.05)


async def through(worker: Worker, items: int) -> float:
    """Seconds from now until the last item is completed."""
    began = time.perf_counter()
    lanes = [asyncio.create_task(worker.lane(items)) for _ in range(LANES)]
    waiting = asyncio.create_task(worker.all_done.wait())
    await asyncio.wait({waiting, *lanes}, return_when=asyncio.FIRST_COMPLETED)
    seconds = time.perf_counter() - began
    await asyncio.gather(*lanes)
    return seconds


@contextlib.asynccontextmanager
async def connected(stack: Stack, admin: AdminClient) -> AsyncIterator[rpc.ExternalWorkStub]:
    """The leader, as a worker sees it."""
    pool = ChannelPool(tls=TlsFiles(stack.home.tls / "external-worker"), trust_domain=TRUST_DOMAIN)
    leader = (await asyncio.to_thread(admin.cluster)).leader_address
    yield rpc.ExternalWorkStub(pool.get(leader, "coordinator"))
    await pool.close()


async def flow(worker: Worker, admin: AdminClient, items: int) -> float:
    """Seconds from the first enqueue to the last completion of a worker that waits already."""
    filling = asyncio.create_task(asyncio.to_thread(enqueue, admin, items))
    seconds = await through(worker, items)
    await filling
    return seconds


async def measure(stack: Stack, admin: AdminClient, *, items: int, batch: int) -> None:
    """Both parts."""
    shape = {"bench": "external_items", "items": items, "batch": batch}
    async with connected(stack, admin) as stub:
        await flow(Worker(stub, batch=batch), admin, CHUNK)
        await asyncio.to_thread(enqueue, admin, items)
        await asyncio.to_thread(until_offered, stack, items)
        parts = {"backlog": await through(Worker(stub, batch=batch), items)}
        parts["flow"] = await flow(Worker(stub, batch=batch), admin, items)
    for part, seconds in parts.items():
        figure = {"part": part, "seconds": round(seconds, 3), "items_per_s": round(items / seconds)}
        print(json.dumps({**shape, **figure}), flush=True)


def main() -> None:
    """Measure on a stack of its own."""
    items, batch = (*map(int, sys.argv[1:]), *(6000, 250)[len(sys.argv) - 1 :])
    with whole_stack(executors=1) as (stack, admin):
        admin.apply(JOB)
        asyncio.run(measure(stack, admin, items=items, batch=batch))


if __name__ == "__main__":
    main()
