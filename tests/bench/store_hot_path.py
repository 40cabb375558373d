"""Enqueue → assign → report → history over real PostgreSQL with executors that answer at once: what store and decisions alone can do.

Usage: scripts/bench store_hot_path, or python tests/bench/store_hot_path.py [runs] [slots of each of the two executors]; prints one JSON line.
"""

import asyncio
import json
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.placement.fast_path import CurrentFastPath
from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.app.runs.start_runs import RunRequest, StartRuns
from toban_coordinator.decide.runs.report import Report
from toban_coordinator.loops.build_loops import leader_loops
from toban_coordinator.loops.external_locks import ClaimObserver
from toban_coordinator.loops.term_loop import LoopDeps
from toban_coordinator.ports.orders import StartResult
from toban_domain.epoch import Epoch, Term, TokenSource
from toban_domain.outcome import Outcome, OutcomeKind
from toban_domain.settings import Settings
from toban_runtime.clock import SystemClock
from toban_store.pool import open_pool
from toban_store.tx import tx
from toban_testing.servers import SessionServers

EXECUTORS = 2
# Many slots show what the database can do; 16 what one batch costs in turn.
SLOTS = 128
ROUND_SECONDS = 120.0


class Now:
    skew_seconds = 0.0

    def now(self):
        return datetime.now(UTC)


class Defaults:
    known = Settings()

    async def get(self):
        return self.known


class InstantExecutors:
    """Accepts every start and reports its success at once, in batches as an executor would."""

    def __init__(self, reports, wake):
        self.reports, self.wake = reports, wake
        self.waiting = defaultdict(list)
        self.busy = {}
        self.done = 0
        self.more = asyncio.Event()

    async def start(self, target, term, orders, smallest_live_token):
        self.waiting[target.incarnation] += [order.key for order in orders]
        if target.incarnation not in self.busy:
            self.busy[target.incarnation] = asyncio.create_task(self._report(target.incarnation))
        return [StartResult(order.key, True) for order in orders]

    async def _report(self, incarnation):
        while self.waiting[incarnation]:
            keys, self.waiting[incarnation] = self.waiting[incarnation], []
            at = datetime.now(UTC)
            outcome = Outcome(kind=OutcomeKind.SUCCEEDED, exit_code=0, started_at=at, finished_at=at)
            await self.reports.commit(incarnation, [Report(key, 1, outcome) for key in keys])
            self.done += len(keys)
            self.more.set()
            self.wake()
        del self.busy[incarnation]


async def lead(pool, slots=SLOTS):
    """Takes the leader row and registers the executors."""
    epoch = Epoch(1, 1).pack()
    async with tx(pool) as t:
        row = await t.fetch_one(
            "UPDATE scheduler.leader SET epoch = %(e)s::bigint RETURNING scheduler.current_system_id() AS s, scheduler.current_timeline() AS l",
            {"e": epoch},
        )
        for number in range(EXECUTORS):
            await t.execute(
                "INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash,"
                " lease_ms, slots, last_heartbeat_at) VALUES (%(i)s, %(n)s, %(t)s, 'n', 'b', 1, 'h', 1, '', 10000, %(s)s, now() + interval '1 h')",
                {"i": f"00000000-0000-4000-8000-{number:012d}", "n": number + 1, "t": str(number), "s": slots},
            )
    return Term(epoch=epoch, worker_id=1, incarnation="x", system_id=row["s"], timeline=row["l"])


def leader_deps(pool, term, orders, clock):
    """What the loops of a leader work with, over fake executors."""
    return LoopDeps(
        pool=pool,
        quick=pool,
        term=term,
        tokens=TokenSource(term),
        orders=orders,
        clock=clock,
        server_time=Now(),
        settings=Defaults(),
        fast_path=CurrentFastPath(),
    )


def loops_of(deps):
    """The loops of a leader by name; none of them runs yet."""
    return {loop.name: loop for loop in leader_loops(deps, ClaimObserver(pool=deps.pool, clock=deps.clock))}


class Bench:
    """The part of a coordinator that runs pass through, over fake executors."""

    def __init__(self, pool, term):
        self.orders = InstantExecutors(ReportQueue(pool=pool), lambda: self.assign.wake())
        self.loops = loops_of(leader_deps(pool, term, self.orders, SystemClock()))
        self.assign = self.loops["assign"]
        # A fast path of its own, which no leader serves: these runs are created and assigned in two steps.
        self.starter = StartRuns(
            pool=pool, definitions=DefinitionCache(), payloads=PayloadValidator(), fast_path=CurrentFastPath()
        )
        self.stop = asyncio.Event()
        self.assigning = asyncio.create_task(self.assign.run(self.stop))
        # Ends a wait for runs: without the loop none of them would end.
        self.assigning.add_done_callback(lambda _: self.orders.more.set())

    async def round_of(self, count, job="true"):
        """Seconds to enqueue so many runs, and until all have ended. Raises TimeoutError, and what ended the loop."""
        self.orders.done = 0
        began = time.perf_counter()
        await self.starter.start([RunRequest(job=job) for _ in range(count)], "bench")
        enqueued = time.perf_counter()
        self.assign.wake()
        await self.until_done(count)
        return enqueued - began, time.perf_counter() - began

    async def until_done(self, count):
        """Until so many runs have ended. Raises TimeoutError, and what ended the loop."""
        async with asyncio.timeout(ROUND_SECONDS):
            while self.orders.done < count:
                if self.assigning.done():
                    self.assigning.result()
                self.orders.more.clear()
                await self.orders.more.wait()

    async def close(self):
        self.stop.set()
        self.assign.wake()
        await self.assigning


async def measure(url, runs, slots):
    pool = await open_pool(url, application_name="bench", min_size=4, max_size=8)
    bench = Bench(pool, await lead(pool, slots))
    manifest = {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": "true"},
        "spec": {"steps": [{"id": "run", "type": "command", "argv": ["/bin/true"]}]},
    }
    await Apply(pool=pool).apply([ManifestText(json=json.dumps(manifest))], actor="bench")
    await bench.round_of(200)
    latencies = []
    for _ in range(100):
        await asyncio.sleep(0.005)
        latencies.append((await bench.round_of(1))[1] * 1000)
    latencies.sort()
    turns, cpu = bench.assign.turns, time.process_time()
    enqueue, total = await bench.round_of(runs)
    figures = {
        "bench": "store_hot_path",
        "runs": runs,
        "slots": EXECUTORS * slots,
        "runs_per_s": round(runs / total),
        "enqueue_per_s": round(runs / enqueue),
        "assign_turns": bench.assign.turns - turns,
        "python_cpu_share": round((time.process_time() - cpu) / total, 2),
        "idle_ms_p50": round(latencies[50], 2),
        "idle_ms_p99": round(latencies[98], 2),
    }
    print(json.dumps(figures))
    await bench.close()
    await pool.close()


def main():
    servers = SessionServers()
    try:
        server = servers.postgres(15)
        url = server.migrated()
        runs, slots = (int(given) for given in (*sys.argv[1:3], *("2000", str(SLOTS))[len(sys.argv[1:3]) :]))
        asyncio.run(measure(url, runs, slots))
        server.drop(url)
    finally:
        servers.stop()


if __name__ == "__main__":
    main()
