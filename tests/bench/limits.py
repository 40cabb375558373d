"""What limits and fair order cost: on a whole stack, and over real PostgreSQL with executors that answer at once (as in store_hot_path).

Usage: scripts/bench limits, or python tests/bench/limits.py [FACTOR [PART ...]]; FACTOR (1) multiplies all numbers of runs. Prints one JSON line a
part: stack (runs of a limited job beside those of a plain one, in turn), throughput (the same without executors), flood (one run of a tenant beside
50,000 of another), resume (of 10,000 deferred runs) and tick (of a leader with 100,000 deferred runs beside one without any).
"""

import asyncio
import json
import statistics
import sys
import time

from bench_cpu import StackCpu
from bench_stack import job, whole_stack
from store_hot_path import EXECUTORS, Bench, lead
from workloads import backlog

from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.limits.operations_limits import LimitOperations
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.runs.start_runs import RunRequest
from toban_store.pool import open_pool
from toban_store.tx import autocommit
from toban_testing.servers import SessionServers
from toban_testing.stack_fixtures import leader_name

SLOTS = 128
ROUNDS = 8
RUNS, FLOOD, DEFERRED, TICK_ROWS = 4000, 50_000, 10_000, 100_000
TICKS = 100
STACK_RUNS, STACK_ROUNDS = 1500, 7
POLL = 0.005
# Loops that each tick of a leader asks.
TICKING = ("fire", "events", "assign", "resume", "limits", "dispatch", "reap", "reconcile")
ROWS = (
    "INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, scope, scope_id, state, deferred_on,"
    " deferred_weight, deferred_at) SELECT d.id, d.version, d.name, 'demand', now() - interval '1 hour', 'account', 'flood',"
    " %(state)s::scheduler.run_state, %(key)s::text, 1, CASE WHEN %(key)s::text <> '' THEN now() END"
    " FROM scheduler.job_definitions d, generate_series(1, %(runs)s::integer) WHERE d.name = %(job)s::text"
)


class Measured(Bench):
    """Notes when each run is sent; loops `resume` and `limits` turn as in a leader."""

    def __init__(self, pool, term):
        super().__init__(pool, term)
        self.pool = pool
        self.sent = {}
        self.noted = asyncio.Event()
        accept, wake = self.orders.start, self.orders.wake

        async def start(target, term, orders, smallest_live_token):
            self.sent |= {order.key.run_id: time.perf_counter() for order in orders}
            self.noted.set()
            return await accept(target, term, orders, smallest_live_token)

        def freed():
            wake()
            self.loops["resume"].wake()

        self.orders.start, self.orders.wake = start, freed
        self.others = [asyncio.create_task(self.loops[name].run(self.stop)) for name in ("resume", "limits")]

    async def apply(self, *jobs):
        """Jobs by name with their concurrency sections."""
        step = {"id": "run", "type": "command", "argv": ["/bin/true"]}
        manifests = [
            {
                "apiVersion": "toban/v1",
                "kind": "Job",
                "metadata": {"name": name},
                "spec": {"steps": [step], **({"concurrency": concurrency} if concurrency else {})},
            }
            for name, concurrency in jobs
        ]
        await Apply(pool=self.pool).apply([ManifestText(json=json.dumps(one)) for one in manifests], actor="bench")

    async def fill(self, job, runs, key=""):
        """Rows of runs that wait: for an executor, or for limit `key`."""
        state = "DEFERRED" if key else "PENDING"
        async with autocommit(self.pool) as t:
            for first in range(0, runs, 2000):
                rows = {"runs": min(2000, runs - first), "state": state, "key": key or None, "job": job}
                await t.execute(ROWS, rows)
            await t.execute("ANALYZE scheduler.runs_live")

    async def until_resumed(self):
        """Until no run is deferred."""
        while True:
            async with autocommit(self.pool) as t:
                row = await t.fetch_one("SELECT 1 FROM scheduler.runs_live WHERE state = 'DEFERRED' LIMIT 1")
            if row is None:
                return
            await asyncio.sleep(POLL)

    async def close(self):
        self.stop.set()
        for name in ("resume", "limits"):
            self.loops[name].wake()
        await asyncio.gather(*self.others)
        await super().close()
        await asyncio.gather(*self.orders.busy.values())


def stack(factor):
    """Runs a second and CPU time a run of a job without limits, and of one with a limit that never fills; rounds of both in turn."""
    rates, spent = {"plain": [], "limited": []}, {"plain": [], "limited": []}
    with whole_stack(executors=2, slots=16) as (running, admin):
        pids = {name: replica.pid for name, replica in running.processes().items()}
        cpu = StackCpu(pids, leader=leader_name(running, admin))
        admin.apply(job("plain", ["/bin/true"]))
        admin.apply(job("limited", ["/bin/true"], concurrency={"limit": 100_000}))
        for name in rates:
            backlog(admin, cpu, runs=100, job_name=name)
        for _ in range(max(1, round(STACK_ROUNDS * factor))):
            for name, found in rates.items():
                figures = backlog(admin, cpu, runs=max(100, int(STACK_RUNS * factor)), job_name=name)
                found.append(figures.runs_per_s)
                spent[name].append(figures.cpu_ms_per_run["total"])
    ratios = [limited / plain for plain, limited in zip(rates["plain"], rates["limited"], strict=True)]
    cpu_ratios = [plain / limited for plain, limited in zip(spent["plain"], spent["limited"], strict=True)]
    medians = {f"{name}_per_s": round(statistics.median(found)) for name, found in rates.items()}
    medians |= {f"{name}_cpu_ms": round(statistics.median(found), 2) for name, found in spent.items()}
    return {
        **medians,
        "ratio": round(statistics.median(ratios), 3),
        "cpu_ratio": round(statistics.median(cpu_ratios), 3),
    }


async def throughput(bench, factor):
    """Runs a second of a job without limits, and of one with a limit and a pool that never fill; rounds of both in turn."""
    await LimitOperations(pool=bench.pool).set("pool:wide", 100_000, reason="", actor="bench")
    await bench.apply(("plain", None), ("limited", {"limit": 100_000, "pools": {"wide": 1}}))
    runs = int(RUNS * factor)
    rates = {"plain": [], "limited": []}
    for name in rates:
        await bench.round_of(500, name)
    for number in range(ROUNDS):
        # Each as often first as second: rows that ended runs have left cost the later one more.
        for name in sorted(rates, reverse=number % 2 == 0):
            rates[name].append(runs / (await bench.round_of(runs, name))[1])
    ratios = [limited / plain for plain, limited in zip(rates["plain"], rates["limited"], strict=True)]
    without, limited = (round(statistics.median(rates[name])) for name in ("plain", "limited"))
    return {"runs": runs, "without_per_s": without, "with_per_s": limited, "ratio": round(statistics.median(ratios), 3)}


async def flood(bench, factor):
    """From the call that starts a tenant's run to its order, while runs of another tenant keep all slots busy; and how many of those go before."""
    await bench.apply(("flooded", None))
    alone = [await start_one(bench) for _ in range(20)]
    runs = int(FLOOD * factor)
    await bench.fill("flooded", runs)
    bench.orders.done = 0
    bench.assign.wake()
    await bench.until_done(runs // 20)
    beside = [await start_one(bench) for _ in range(20)]
    left = runs + len(beside) - bench.orders.done
    figures = {"runs": runs, "left_after": left, "slots": EXECUTORS * SLOTS}
    for name, found in (("alone", alone), ("beside", beside)):
        figures[f"{name}_ms_p50"] = round(statistics.median(seconds for seconds, _ in found) * 1000, 1)
        figures[f"{name}_ms_max"] = round(max(seconds for seconds, _ in found) * 1000, 1)
    return {**figures, "sent_before_p50": statistics.median(before for _, before in found)}


async def start_one(bench):
    """(seconds from the call to the order of one run, how many orders of others were sent after it was stored and before it)."""
    began = time.perf_counter()
    request = RunRequest(job="flooded", scope="account", scope_id="other")
    [run] = await bench.starter.start([request], "bench")
    stored = time.perf_counter()
    bench.assign.wake()
    async with asyncio.timeout(60):
        while run.run_id not in bench.sent:
            bench.noted.clear()
            await bench.noted.wait()
    sent = bench.sent[run.run_id]
    return sent - began, sum(stored < at < sent for at in bench.sent.values())


async def resume(bench, factor):
    """Deferred runs on a limit that is taken away: until none is deferred, and until all have ended."""
    await bench.apply(("held", {"limit": 1}))
    runs = int(DEFERRED * factor)
    await bench.fill("held", runs, "job:held")
    bench.orders.done = 0
    began = time.perf_counter()
    await LimitOperations(pool=bench.pool).set("job:held", 0, reason="", actor="bench")
    bench.loops["limits"].wake()
    await bench.until_resumed()
    resumed = time.perf_counter() - began
    await bench.until_done(runs)
    return {"runs": runs, "resumed_s": round(resumed, 2), "ended_s": round(time.perf_counter() - began, 2)}


async def tick(bench, factor):
    """A full turn of each loop that ticks, and the tick of a leader that nothing woke, with deferred runs beside none."""
    await bench.apply(("full", {"limit": -1}))
    empty = await ticks(bench, factor)
    runs = int(TICK_ROWS * factor)
    await bench.fill("full", runs, "job:full")
    full = await ticks(bench, factor)
    figures = {"turns_ms_empty": empty[0], "turns_ms_full": full[0], "tick_ms_empty": empty[1], "tick_ms_full": full[1]}
    return {"deferred": runs, **figures, "ratio": round(full[0] / empty[0], 3)}


async def ticks(bench, factor):
    """Medians, milliseconds: all loops in full, one after the other; and all of them as a tick asks them, together."""
    loops = [bench.loops[name] for name in TICKING]
    turns, idle = [], []
    for _ in range(max(3, round(TICKS * factor))):
        began = time.perf_counter()
        for loop in loops:
            await loop._work()
        turns.append(time.perf_counter() - began)
        for loop in loops:
            loop._forced = False
        began = time.perf_counter()
        await asyncio.gather(*(loop._timed() for loop in loops))
        idle.append(time.perf_counter() - began)
    return [round(statistics.median(found) * 1000, 3) for found in (turns, idle)]


async def measure(url, part, factor):
    pool = await open_pool(url, application_name="bench", min_size=4, max_size=8)
    bench = Measured(pool, await lead(pool, SLOTS))
    try:
        print(json.dumps({"bench": "limits", "part": part.__name__, **await part(bench, factor)}), flush=True)
    finally:
        await bench.close()
        await pool.close()


def main():
    factor = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    wanted = sys.argv[2:]
    if not wanted or "stack" in wanted:
        print(json.dumps({"bench": "limits", "part": "stack", **stack(factor)}), flush=True)
    servers = SessionServers()
    try:
        server = servers.postgres(15)
        for part in (throughput, flood, resume, tick):
            if wanted and part.__name__ not in wanted:
                continue
            url = server.migrated()
            asyncio.run(measure(url, part, factor))
            server.drop(url)
    finally:
        servers.stop()


if __name__ == "__main__":
    main()
