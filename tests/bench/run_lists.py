"""Pages of runs by each filter, alone and with a job, among many finished runs; through JobReads and real PostgreSQL.

Usage: scripts/bench run_lists, or python tests/bench/run_lists.py [finished runs] [days]; prints one JSON line with p50 and p95 in milliseconds
for each filter, for counts of runs, and for the overview: its first answers read the last day in parts. Each measurement of a list asks for the
first page and for one in the middle, with changing values.
"""

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta

import psycopg

from toban_coordinator.app.cluster.overview import KEPT_SECONDS, Overviews
from toban_coordinator.app.paging import PageRequest
from toban_coordinator.app.runs.job_reads import JobReads
from toban_coordinator.app.runs.run_counts import CountRuns
from toban_coordinator.app.runs.run_queries import RunQuery
from toban_runtime.clock import SystemClock
from toban_store.pool import open_pool
from toban_testing.servers import SessionServers

JOBS, EXECUTORS, ROUNDS = 200, 50, 30
CHUNK = 100_000

# The jobs' shares fall as 1/n: the first has about a sixth of all runs. One run in a thousand fails, one in 100,000 was skipped.
FILL = """
INSERT INTO scheduler.runs_history (id, definition_id, definition_version, job_name, schedule_id, schedule_name, origin, scheduled_for, state, scope,
                                    scope_id, token, log_day, assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at, started_at,
                                    finished_at, created_at, created_by, last_line)
SELECT n, j, 1, 'job-' || j, CASE WHEN n %% 3 = 0 THEN j END, CASE WHEN n %% 3 = 0 THEN 'often-' || j ELSE '' END,
       CASE WHEN n %% 100000 = 7 THEN 'rerun' WHEN n %% 5000 = 9 THEN 'event' WHEN n %% 3 = 0 THEN 'slot' ELSE 'demand' END, at,
       (CASE WHEN n %% 100000 = 3 THEN 'SKIPPED' WHEN n %% 1000 = 1 THEN 'FAILED' WHEN n %% 3000 = 2 THEN 'CANCELED'
             ELSE 'SUCCEEDED' END)::scheduler.run_state,
       CASE WHEN n %% 10 = 5 THEN 'account' ELSE 'system' END, CASE WHEN n %% 10 = 5 THEN (n %% 970)::text ELSE '' END,
       n, at::date, md5((n %% %(executors)s)::text)::uuid, 1000 + n %% %(executors)s, at, at, at,
       at + interval '1 s', at, 'bench', 'the last line of its output'
  FROM (SELECT n, floor(power(%(jobs)s, random()))::bigint AS j,
               now() - make_interval(secs => (%(runs)s - n) * %(seconds)s::double precision / %(runs)s) AS at
          FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n) x
"""
DEFINITIONS = """
INSERT INTO scheduler.job_definitions (name, version, enabled, spec, spec_hash)
SELECT 'job-' || j, 1, true, jsonb_build_object('labels', jsonb_build_object('team', 'team-' || j %% 10)), ''
  FROM generate_series(1, %(jobs)s) AS j
"""
EXECUTOR_ROWS = """
INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port, key_hash, lease_ms, slots)
SELECT md5(n::text)::uuid, 1000 + n, 'instance-' || n, 'node-' || n, 'b', 1, 'h', 1, '', 10000, 16
  FROM generate_series(0, %(executors)s - 1) AS n
"""


def fill(url, runs, days):
    with psycopg.connect(url, autocommit=True) as connection:
        for text in (DEFINITIONS, EXECUTOR_ROWS):
            connection.execute(text, {"jobs": JOBS, "executors": EXECUTORS})
        fill_runs(connection, runs, days)


def fill_runs(connection, runs, days):
    """Finished runs of jobs and executors that are there."""
    parameters = {"runs": runs, "seconds": (days - 1) * 86_400, "jobs": JOBS, "executors": EXECUTORS}
    connection.execute(
        "SELECT scheduler.ensure_partitions((now() - make_interval(days => %s))::date, now()::date)", [days]
    )
    for first in range(1, runs + 1, CHUNK):
        connection.execute(FILL, parameters | {"first": first, "last": min(first + CHUNK - 1, runs)})
    connection.execute("VACUUM ANALYZE")


def queries(round_number, days):
    """Name → filter, with other values in each round."""
    jobs = [f"job-{number}" for number in (1, 2, 40, 150, 10)]
    job = jobs[round_number % len(jobs)]
    began = datetime.now(UTC) - timedelta(days=days * (round_number + 1) / (ROUNDS + 2))
    alone = {
        "state FAILED": {"states": ("FAILED",)},
        "state SKIPPED": {"states": ("SKIPPED",)},
        "state TIMED_OUT, none": {"states": ("TIMED_OUT",)},
        "state SUCCEEDED": {"states": ("SUCCEEDED",)},
        "state of all that ended badly": {"states": ("FAILED", "TIMED_OUT", "CANCELED", "SKIPPED", "EXPIRED")},
        "schedule": {"schedule": f"often-{round_number + 1}"},
        "executor": {"executor": f"node-{round_number}"},
        "span of an hour": {"active_from": began, "active_until": began + timedelta(hours=1)},
        "origin rerun": {"origin": "rerun"},
        "origin event": {"origin": "event"},
        "scope": {"scope": "account", "scope_id": str(5 + 10 * (round_number % 97))},
        "label": {"labels": {"team": f"team-{round_number % 10}"}},
    }
    with_job = {f"job and {name}": {**part, "job": job} for name, part in alone.items()}
    with_job["job and label"]["labels"] = {"team": f"team-{int(job[4:]) % 10}"}
    return {"any": {}, "job": {"job": job}} | alone | with_job


def counts(round_number):
    """Name → hours, filter, and what runs are grouped by; the last one has more runs than are counted."""
    job = f"job-{round_number + 1}"
    return {
        "an hour by executor": (1, {}, "executor"),
        "a day by job": (24, {}, "job"),
        "a day of a job": (24, {"job": job}, "executor"),
        "30 days of a job": (720, {"job": job}, "job"),
        "30 days": (720, {}, "job"),
    }


async def count_hours(runs, hours, wanted, by):
    """In 60 intervals, as the timeline does, for a person who may see all."""

    since = datetime.now(UTC) - timedelta(hours=hours)
    await runs.get(RunQuery(active_from=since, **wanted), by=by, interval_seconds=hours * 60, rights=None)


async def measure(url, runs, days):
    began = time.perf_counter()
    fill(url, runs, days)
    filled = time.perf_counter() - began
    pool = await open_pool(url, application_name="bench", min_size=1, max_size=2)
    reads = JobReads(pool=pool, clock=SystemClock())
    times = {}
    for round_number in range(ROUNDS):
        for name, wanted in queries(round_number, days).items():
            for cursor in ("", str(runs // 2)):
                asked = time.perf_counter()
                await reads.list_runs(RunQuery(**wanted), PageRequest(cursor=cursor))
                times.setdefault(name, []).append((time.perf_counter() - asked) * 1000)
    for round_number in range(ROUNDS):
        for name, (hours, wanted, by) in counts(round_number).items():
            asked = time.perf_counter()
            await count_hours(CountRuns(pool=pool), hours, wanted, by)
            times.setdefault(f"count {name}", []).append((time.perf_counter() - asked) * 1000)
    overviews = Overviews(pool=pool, clock=SystemClock(), health=dict)
    for _ in range(ROUNDS):
        asked = time.perf_counter()
        await overviews.get()
        times.setdefault("overview", []).append((time.perf_counter() - asked) * 1000)
        await asyncio.sleep(KEPT_SECONDS + 0.05)
    figures = {
        name: [round(sorted(each)[len(each) * share // 100], 1) for share in (50, 95)] for name, each in times.items()
    }
    worst = max(p95 for _, p95 in figures.values())
    print(
        json.dumps(
            {
                "bench": "run_lists",
                "runs": runs,
                "days": days,
                "fill_s": round(filled),
                "worst_p95_ms": worst,
                "p50_p95_ms": figures,
            }
        )
    )
    await pool.close()


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    days = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    servers = SessionServers()
    try:
        server = servers.postgres(15)
        url = server.migrated()
        asyncio.run(measure(url, runs, days))
        server.drop(url)
    finally:
        servers.stop()


if __name__ == "__main__":
    main()
