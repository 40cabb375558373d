"""How the cost of a leader's turns, of a start and of a list grows with what is stored: over real PostgreSQL, with executors that only accept.

Usage: scripts/bench growth, or python tests/bench/growth.py [LARGEST] [--svg FILE]. LARGEST (1000000): no dimension goes beyond this count. Prints
one JSON line a point; --svg draws the ratios. What is measured:

tick: a turn of loop `fire` that fires 20 of 1,000 schedules. assign: a turn of loop `assign` that places 32 runs while others wait.
start: StartRuns of one run, which waits behind others. list, list_filtered: the first page of all runs, and of those of a job that succeeded.

The small case has 1,000 finished runs, 100 pending ones and 2 executors. In a large case one of these counts is larger. Small and large case have a
database each and take turns within a round, since the speed of a virtual machine varies. `ratio`: the median of the large case by that of the small
one that was measured with it. Goal: 1.2 at most.
"""

import argparse
import asyncio
import json
import statistics
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psycopg
from bench_stack import job, schedules
from growth_chart import chart
from limits import ROWS
from run_lists import DEFINITIONS, EXECUTORS, JOBS, fill_runs
from store_hot_path import lead, leader_deps, loops_of

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.runs.job_reads import JobReads
from toban_coordinator.app.runs.run_queries import RunQuery
from toban_coordinator.app.runs.start_runs import RunRequest, StartRuns
from toban_coordinator.ports.orders import StartResult
from toban_runtime.clock import SystemClock
from toban_store.pool import open_pool
from toban_store.tx import autocommit
from toban_testing.servers import SessionServers

GOAL = 1.2
SMALL = {"finished": 1000, "pending": 100, "executors": 2}
LARGE = {
    "finished": (100_000, 1_000_000, 10_000_000),
    "pending": (10_000, 100_000),
    "executors": (100, 1000),
}
DAYS, SCHEDULES, DUE, SLOTS = 30, 1000, 20, 16
PLACED = SMALL["executors"] * SLOTS
# PostgreSQL plans a statement for any values at its sixth execution: the rounds before are not counted.
WARM_UP, ROUNDS = 8, 60
# Seconds from one turn to the next: each has the reads that are due at most twice a second, and none waits for its pace.
TURN_SECONDS = 1.0
# Further executors are full, with one slot and one run each: the free slots, and so the runs of a turn, are the same in each case.
FULL_EXECUTORS = """
WITH full_ones AS (
    INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash, lease_ms, slots,
                                     last_heartbeat_at)
    SELECT md5('full-' || n)::uuid, 10000 + n, 'full-' || n, 'n', 'b', 1, 'h', 1, '', 10000, 1, now() + interval '1 h'
      FROM generate_series(1, %(full)s::integer) n
    RETURNING incarnation, worker_id
)
INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, scope, scope_id, state, token, log_day,
                                 assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at, started_at)
SELECT d.id, d.version, d.name, 'demand', now() - interval '2 h', 'account', 'flood', 'RUNNING', e.worker_id, now()::date, e.incarnation, e.worker_id,
       now() - interval '2 h', now() - interval '2 h', now() - interval '2 h'
  FROM full_ones e, scheduler.job_definitions d
 WHERE d.name = 'bench-true'
"""
COME_DUE = f"UPDATE scheduler.schedules SET next_run_at = now() WHERE id IN (SELECT id FROM scheduler.schedules ORDER BY id LIMIT {DUE})"
# Executors have a heartbeat a second, and turns of a busy leader are 30 ms apart: one executor in 33 has another row than in the turn before.
HEARTBEATS = "UPDATE scheduler.executors SET last_heartbeat_at = now() + interval '1 h' WHERE worker_id %% 33 = %(turn)s::bigint %% 33"
FORGET_FIRED = "DELETE FROM scheduler.runs_live WHERE schedule_id IS NOT NULL"
FORGET = "DELETE FROM scheduler.runs_live WHERE id = ANY(%(ids)s::bigint[])"


class AcceptingExecutors:
    """Accepts every start, and notes its run."""

    def __init__(self):
        self.runs = []
        self.more = asyncio.Event()

    async def start(self, target, term, orders, smallest_live_token):
        self.runs += [order.key.run_id for order in orders]
        self.more.set()
        return [StartResult(order.key, True) for order in orders]


class TurnClock(SystemClock):
    """Monotonic time that stands still between turns."""

    def __init__(self):
        self.now = super().monotonic()

    def monotonic(self):
        return self.now


class Case:
    """A coordinator over a database with so many rows, whose rows are the same again after each round."""

    def __init__(self, pool, term):
        self.pool = pool
        self.times = {}
        self.orders, self.clock = AcceptingExecutors(), TurnClock()
        deps = leader_deps(pool, term, self.orders, self.clock)
        self.loops = loops_of(deps)
        self.reads = JobReads(pool=pool, clock=SystemClock())
        self.starter = StartRuns(
            pool=pool, definitions=DefinitionCache(), payloads=PayloadValidator(), fast_path=deps.fast_path
        )

    async def timed(self, what, work):
        began = time.perf_counter()
        done = await work
        self.times.setdefault(what, []).append((time.perf_counter() - began) * 1000)
        return done

    async def change(self, statement, **parameters):
        async with autocommit(self.pool) as t:
            await t.execute(statement, parameters)

    async def list(self):
        await self.timed("list", self.reads.list_runs(RunQuery(), PageRequest()))

    async def list_filtered(self):
        query = RunQuery(job="job-1", states=("SUCCEEDED",))
        page = await self.timed("list_filtered", self.reads.list_runs(query, PageRequest()))
        assert page.next_cursor, "a page that is not full is not comparable"

    async def tick(self):
        await self.change(COME_DUE)
        fired = await self.timed("tick", self.loops["fire"]._work())
        assert fired.moved == DUE, fired
        await self.change(FORGET_FIRED)

    async def start(self):
        request = RunRequest(job="bench-true", scope="account", scope_id="flood")
        await self.timed("start", self.starter.start([request], "bench"))

    async def assign(self):
        """The runs that were placed are gone afterwards, and as many wait as before `start`."""
        self.orders.runs.clear()
        await self.change(HEARTBEATS, turn=len(self.times.get("assign", ())))
        self.clock.now += TURN_SECONDS
        placed = await self.timed("assign", self.loops["assign"]._work())
        assert placed.moved == PLACED, placed
        async with asyncio.timeout(60):
            while len(self.orders.runs) < PLACED:
                self.orders.more.clear()
                await self.orders.more.wait()
        await self.change(FORGET, ids=self.orders.runs)
        await self.change(ROWS, runs=PLACED - 1, state="PENDING", key=None, job="bench-true")

    def figures(self):
        """Name → (p50, p95), milliseconds."""
        kept = {what: sorted(found[WARM_UP:]) for what, found in self.times.items()}
        return {what: (statistics.median(found), found[len(found) * 95 // 100]) for what, found in kept.items()}


FIGURES = (Case.tick, Case.start, Case.list, Case.list_filtered, Case.assign)


@asynccontextmanager
async def case(server, counts):
    """A database of its own with these counts, until the end of the context."""
    url = server.migrated()
    pool = await open_pool(url, application_name="bench", min_size=2, max_size=4)
    try:
        term = await lead(pool, SLOTS)
        once_in_years = schedules(SCHEDULES, job="bench-true", cron="0 0 29 2 *")
        for manifests in ([job("bench-true", ["/bin/true"])], *once_in_years):
            texts = [ManifestText(json=json.dumps(one)) for one in manifests]
            await Apply(pool=pool).apply(texts, actor="bench")
        await asyncio.to_thread(fill, url, counts)
        made = Case(pool, term)
        try:
            yield made
        finally:
            await asyncio.gather(*(made.loops[name]._close() for name in ("assign", "dispatch")))
    finally:
        await pool.close()
        server.drop(url)


def fill(url, counts):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DEFINITIONS, {"jobs": JOBS, "executors": EXECUTORS})
        # Live runs are newer than finished ones.
        connection.execute("SELECT setval('scheduler.run_id_seq', %s)", [counts["finished"]])
        connection.execute(FULL_EXECUTORS, {"full": counts["executors"] - SMALL["executors"]})
        parameters = {"runs": counts["pending"], "state": "PENDING", "key": None, "job": "bench-true"}
        connection.execute(ROWS, parameters)
        fill_runs(connection, counts["finished"], DAYS)
        connection.execute("CHECKPOINT")


async def measure(server, by, count):
    """Figures of the small case, and of the one with so many rows of one kind."""
    async with AsyncExitStack() as context:
        cases = [await context.enter_async_context(case(server, SMALL | {by: n})) for n in (SMALL[by], count)]
        for number in range(WARM_UP + ROUNDS):
            for figure in FIGURES:
                # Who is second finds warmer caches of the processor.
                for one in cases if number % 2 else reversed(cases):
                    await figure(one)
        return [one.figures() for one in cases]


async def points(server, largest):
    """Yields a dict a figure and count, as the lines have them."""
    for by, counts in LARGE.items():
        first = True
        for count in (each for each in counts if each <= largest):
            small, large = await measure(server, by, count)
            for shown, found in ((SMALL[by], small), (count, large))[0 if first else 1 :]:
                for what, (p50, p95) in found.items():
                    ratio = round(p50 / small[what][0], 2)
                    times = {"p50_ms": round(p50, 2), "p95_ms": round(p95, 2)}
                    yield {"bench": "growth", "what": what, "by": by, "count": shown, **times, "ratio": ratio}
            first = False


async def report(server, largest, picture):
    found = []
    async for point in points(server, largest):
        print(json.dumps(point), flush=True)
        found.append(point)
    if picture is not None:
        picture.write_text(chart(found, goal=GOAL))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("largest", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    servers = SessionServers()
    try:
        asyncio.run(report(servers.postgres(15), given.largest, given.svg))
    finally:
        servers.stop()


if __name__ == "__main__":
    main()
