"""Time of each page of the site, and its weight, in an installation with many runs, jobs and schedules: a whole stack, one person, one connection.

Usage: site_pages.py [FINISHED RUNS] [JOBS] [SCHEDULES] [ROUNDS]; prints a JSON line with p50 and p95 in milliseconds for each page, and the largest
page with its files in compressed bytes. Goals with 1 M runs, 10,000 jobs and 100,000 schedules: p95 below 150 ms, weight below 200,000 bytes.
Pages keep what they have read for people with equal rights for a second: the rounds go over all pages, so that each is read anew.
"""

import http.client
import json
import os
import re
import sys
import time

import psycopg
from bench_stack import job, schedules
from rest_lists import site_stack
from run_lists import EXECUTOR_ROWS, EXECUTORS, fill_runs

from toban_testing.accounts import add_user
from toban_testing.site_client import SiteClient

RUNS, JOBS, SCHEDULES, ROUNDS = (
    int(sys.argv[place + 1]) if len(sys.argv) > place + 1 else default
    for place, default in enumerate((1_000_000, 10_000, 100_000, 20))
)
DAYS = 30
PASSWORD = "correct horse battery"
# Copies of what was applied: job-1 and its schedule, daily at another minute each.
COPIES = """
INSERT INTO scheduler.job_definitions OVERRIDING SYSTEM VALUE
SELECT (jsonb_populate_record(d, jsonb_build_object('id', d.id + n, 'name', 'job-' || n + 1, 'spec',
            jsonb_set(d.spec, '{labels}', jsonb_build_object('team', 'team-' || n %% 10))))).*
  FROM scheduler.job_definitions d, generate_series(1, %(jobs)s::integer - 1) n
 WHERE d.name = 'job-1';
"""
SCHEDULE_COPIES = """
INSERT INTO scheduler.schedules OVERRIDING SYSTEM VALUE
SELECT (jsonb_populate_record(s, jsonb_build_object('id', s.id + n, 'name', 'bench-' || n, 'definition_id', d.id, 'spec',
            s.spec || jsonb_build_object('name', 'bench-' || n, 'job', d.name, 'daily_at', at.time),
            'next_run_at', date_trunc('day', now()) + interval '1 day' + at.time::time))).*
  FROM scheduler.schedules s
 CROSS JOIN generate_series(1, %(schedules)s::integer) n
 CROSS JOIN LATERAL (SELECT to_char(make_interval(mins => (n * 7) %% 1440), 'HH24:MI') AS time) at
  JOIN scheduler.job_definitions d ON d.name = 'job-' || 1 + n %% %(jobs)s::integer
 WHERE s.name = 'bench-000000'
"""
PAGES = {
    "dashboard": "/",
    "palette": "/find?q=job-{n}",
    "runs": "/runs",
    "runs failed": "/runs?state=FAILED",
    "runs of a job": "/runs?job=job-{n}",
    "run": "/runs/{run}",
    "log": "/runs/{run}/log",
    "timeline": "/runs/timeline",
    "timeline of a job": "/runs/timeline?job=job-{n}",
    "jobs": "/jobs",
    "jobs by label": "/jobs?label=team%3Dteam-{digit}",
    "jobs failing": "/jobs?failing=1",
    "jobs by next run": "/jobs?sort=next_run",
    "job": "/jobs/job-{n}",
    "job versions": "/jobs/job-1/versions",
    "job definition": "/jobs/job-{n}/edit",
    "schedules": "/schedules",
    "schedules by name": "/schedules?name=bench-{n}",
    "schedule": "/schedules/bench-{n}",
    "schedule definition": "/schedules/bench-{n}/edit",
    "new schedule": "/new/schedule",
    "coming load": "/load",
    "events": "/events",
    "triggers": "/triggers",
    "executors": "/executors",
    "limits": "/limits",
    "users": "/users",
    "groups": "/groups",
    "rules": "/rules",
    "secrets": "/secrets",
    "webhooks": "/webhooks",
    "hooks": "/incoming",
    "settings": "/settings",
    "audit": "/audit",
    "cluster": "/cluster",
    "account": "/account",
    "api": "/api/docs",
}


def main() -> None:
    """Fill a stack's database, sign in, and read each page again and again."""
    with site_stack() as (stack, admin):
        admin.apply(job("job-1", ["/bin/true"]))
        for batch in schedules(1, job="job-1", daily_at="03:00"):
            admin.apply(*batch)
        began = time.perf_counter()
        with psycopg.connect(stack.endpoints().database_url, autocommit=True) as connection:
            parameters = {"jobs": JOBS, "schedules": SCHEDULES, "executors": EXECUTORS}
            for text in (COPIES, SCHEDULE_COPIES, EXECUTOR_ROWS):
                connection.execute(text, parameters)
            fill_runs(connection, RUNS, DAYS)
        filled = round(time.perf_counter() - began)
        add_user(admin, "chief", "admin", password=PASSWORD)
        client = SiteClient(stack.sites[0])
        client.sign_in("chief", PASSWORD)
        cookie = "; ".join(f"{one.name}={one.value}" for one in client.cookies)
        line = {"bench": "site_pages", "runs": RUNS, "jobs": JOBS, "schedules": SCHEDULES, "fill_s": filled}
        figures, weights = measure(stack.sites[0], cookie)
        slowest, heaviest = max(figures, key=lambda name: figures[name][1]), max(weights, key=weights.__getitem__)
        worst = {"slowest": slowest, "worst_p95_ms": figures[slowest][1]}
        weight = {"heaviest": heaviest, "weight_bytes": weights[heaviest]}
        load = round(os.getloadavg()[0], 1)
        print(json.dumps({**line, "load": load, **worst, **weight, "p50_p95_ms": figures}), flush=True)


def measure(address: str, cookie: str) -> tuple[dict[str, list[float]], dict[str, int]]:
    """p50 and p95 of each page in milliseconds, and its bytes with all its files."""
    connection = http.client.HTTPConnection(address, timeout=60)
    sizes: dict[str, int] = {}

    def get(path: str) -> bytes:
        connection.request("GET", path, headers={"Cookie": cookie, "Accept-Encoding": "gzip"})
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, (path, response.status, body[:300])
        sizes[path] = len(body)
        return body

    times: dict[str, list[float]] = {}
    weights: dict[str, int] = {}
    for turn in range(ROUNDS + 1):
        values = {"n": turn * 37 % JOBS + 1, "digit": turn % 10, "run": RUNS // 2 + turn * 11}
        for name, path in PAGES.items():
            began = time.perf_counter()
            get(path.format(**values))
            # The first round compiles the templates.
            if turn:
                times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
            weights[name] = max(weights.get(name, 0), sizes[path.format(**values)])
    files = sum(len(get(path)) for path in files_of(address, cookie))
    figures = {
        name: [round(sorted(each)[len(each) * share // 100], 1) for share in (50, 95)] for name, each in times.items()
    }
    return figures, {name: size + files for name, size in weights.items()}


def files_of(address: str, cookie: str) -> set[str]:
    """Styles, scripts and icons of the page of a run, which has most of them."""
    client = http.client.HTTPConnection(address, timeout=60)
    client.request("GET", f"/runs/{RUNS // 2}", headers={"Cookie": cookie})
    page = client.getresponse().read().decode()
    return {path.split("#")[0] for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', page)}


if __name__ == "__main__":
    main()
