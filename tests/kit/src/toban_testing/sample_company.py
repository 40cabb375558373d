"""A stack as a small company would have it, for pictures of the site: jobs, schedules, a day of runs, people, and what else pages show.

Runs of the past are rows of the history without output; those that `fill` starts are real.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.accounts import add_user
from toban_testing.admin_client import AdminClient
from toban_testing.site_client import SiteClient

ZONE = "Europe/Zurich"
ADMIN, PASSWORD = "ada", "correct horse battery"
DAYS = 60
FIRST_RUN = 48_000
# Runs of the past have lower numbers.
PAST_RUNS = 5_000
SAMPLES = 9
CUSTOMERS = ("acme", "borealis", "cobalt", "delta", "elm", "fjord", "granit", "helio", "iris", "juno", "kite", "lumen")

NIGHTLY_REPORT = """
import sys
import time

ORDERS = [{"id": n, "total": "%.2f" % (n * 7 % 500)} for n in range(1, 1201)] + [{"id": 1201, "total": "n/a"}]


def total_of(order):
    return float(order["total"])


def main():
    total = 0.0
    for n, order in enumerate(ORDERS, 1):
        if n % 10 == 0:
            level = "warning" if n % 250 == 0 else "info"
            text = "database timeout, read again" if n % 250 == 0 else "orders read"
            time.sleep(0.02)
            print(f'level={level} msg="{text}" order={order["id"]} done={n}', flush=True)
        total += total_of(order)
    print("total", total)


if len(sys.argv) > 1:
    print(f'level=info msg="{sys.argv[1]} done" rows=1201')
else:
    main()
"""
SYNC_CRM = """
import os
import time

wanted = int(os.environ.get("TOBAN_PARAM_CUSTOMERS", "40"))
page, rows = [], 0
print(f"::progress 0 {wanted} customers::", flush=True)
while rows < wanted or wanted > 1000:
    began = time.process_time()
    while time.process_time() - began < 0.12:
        page = [{"customer": n, "name": "customer %d" % n} for n in range(60_000 + rows * 900)]
    rows += 1
    if rows >= 8 and rows % 4 == 0:
        print(f"::progress {40 + rows / 100:.1f} half way::", flush=True)
    if rows % 5 == 0:
        print(f"level=info synced={rows * 25} last_page={len(page)}", flush=True)
    time.sleep(0.3 if wanted > 1000 else 0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Numbers of the runs that pages of the pictures are about."""

    failed: int
    running: int
    waiting: int


def fill(stack: Stack, admin: AdminClient, site: SiteClient, folder: Path) -> Filled:
    """Everything, in an order in which each part finds what it needs; `site` is signed in here. Scripts of the jobs go to `folder`."""
    for name, text in (("nightly_report.py", NIGHTLY_REPORT), ("sync_crm.py", SYNC_CRM)):
        (folder / name).write_text(text.lstrip(), encoding="utf-8")
    with psycopg.connect(stack.endpoints().database_url, autocommit=True) as connection:
        connection.execute("SELECT setval('scheduler.run_id_seq', %s)", [FIRST_RUN])
        admin.call(rpc.OperationsStub, "SetLimit", pb.SetLimitRequest(name="pool:warehouse", limit=2, reason="size"))
        admin.apply(*jobs(folder), *schedules())
        _insert_past(connection, SystemClock().wall())
    add_user(admin, ADMIN, "admin", password=PASSWORD)
    site.sign_in(ADMIN, PASSWORD)
    _submit_forms(site)
    # A later version, so that the audit and the versions of the job have a difference.
    admin.apply(manifest("Job", "send-invoices", {"team": "finance"}, **_send_invoices(folder, timeout_seconds=1800)))
    return _start(admin)


def manifest(kind: str, name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "toban/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _send_invoices(folder: Path, **more: Any) -> dict[str, Any]:
    steps = [{"id": one, "argv": ["python3", "nightly_report.py", one]} for one in ("collect", "render", "send")]
    customer = {"type": "string", "title": "Customer", "description": "all when it is empty"}
    schema = {"type": "object", "properties": {"customer": customer, "dry_run": {"type": "boolean"}}}
    return {"steps": steps, "working_dir": str(folder), "payload_schema": schema, **more}


def jobs(folder: Path) -> Iterator[dict[str, Any]]:
    """The jobs, and the trigger of one of them."""
    report = [
        {"id": "extract", "argv": ["python3", "nightly_report.py", "extract"]},
        {"id": "render", "argv": ["python3", "nightly_report.py"]},
        {"id": "publish", "argv": ["python3", "nightly_report.py", "publish"]},
    ]
    here, finance, platform = {"working_dir": str(folder)}, {"team": "finance"}, {"team": "platform", "tier": "1"}
    yield manifest("Job", "nightly-report", finance, steps=report, timeout_seconds=900, **here)
    yield manifest("Job", "send-invoices", finance, **_send_invoices(folder, timeout_seconds=600))
    sync = [{"argv": ["python3", "sync_crm.py"]}]
    schema = {"type": "object", "properties": {"customers": {"type": "integer", "minimum": 1}}}
    yield manifest(
        "Job", "sync-crm", {"team": "sales"}, steps=sync, concurrency={"limit": 1}, payload_schema=schema, **here
    )
    copy = [{"argv": ["sleep", "900"]}]
    yield manifest("Job", "backup-db", platform, steps=copy, concurrency={"pools": {"warehouse": 1}})
    load = [{"argv": ["python3", "nightly_report.py", "import"]}]
    yield manifest("Job", "import-orders", {"team": "sales"}, steps=load, **here)
    yield manifest("Job", "export-customer", {"team": "sales"}, steps=load, **here)
    yield manifest("Job", "rotate-logs", platform, steps=load, **here)
    yield manifest("EventTrigger", "orders-arrived", event_type="orders.arrived", job="import-orders")


def schedules() -> Iterator[dict[str, Any]]:
    """Schedules in several zones; most of those of a night fire at 03:00 in Zurich."""

    def schedule(name: str, job: str, zone: str = ZONE, **rule: Any) -> dict[str, Any]:
        return manifest("Schedule", name, job=job, timezone=zone, **rule)

    yield schedule("nightly-report", "nightly-report", daily_at="03:00")
    yield schedule("backup-db-nightly", "backup-db", daily_at="03:00")
    for customer in CUSTOMERS:
        yield schedule(f"export-{customer}", "export-customer", daily_at="03:00", payload={"customer": customer})
    yield schedule("sync-crm-often", "sync-crm", cron="*/20 7-19 * * MON-FRI")
    yield schedule("rotate-logs-hourly", "rotate-logs", "UTC", cron="10 * * * *")
    yield schedule("tokyo-opening", "import-orders", "Asia/Tokyo", cron="0 9 * * MON-FRI")
    yield schedule("new-york-closing", "import-orders", "America/New_York", cron="30 16 * * MON-FRI")
    yield schedule("invoices-monthly", "send-invoices", cron="0 8 1 * *")


INSERT = """
INSERT INTO scheduler.runs_history (id, definition_id, definition_version, job_name, schedule_id, schedule_name, origin, slot, scheduled_for, state,
                                    token, log_day, assigned_incarnation, assigned_worker_id, assigned_at, dispatched_at, started_at, finished_at,
                                    created_at, created_by, exit_code, error_summary, last_line, reason)
SELECT %(id)s, d.id, 1, d.name, s.id, COALESCE(s.name, ''), CASE WHEN s.id IS NULL THEN 'demand' ELSE 'slot' END,
       CASE WHEN s.id IS NOT NULL THEN %(due)s::timestamptz END, %(due)s, %(state)s::scheduler.run_state, %(id)s, %(started)s::date, e.incarnation,
       e.worker_id, %(started)s, %(started)s, %(started)s, %(ended)s, %(due)s, 'scheduler', %(code)s, %(error)s, %(line)s, %(reason)s
  FROM scheduler.job_definitions d
  LEFT JOIN scheduler.schedules s ON s.name = %(schedule)s
 CROSS JOIN LATERAL (SELECT x.* FROM scheduler.executors x ORDER BY x.worker_id OFFSET %(executor)s LIMIT 1) e
 WHERE d.name = %(job)s
"""
LEDGER = """
INSERT INTO scheduler.fire_ledger (schedule_id, first_slot, last_slot, outcome, run_id)
SELECT schedule_id, slot, slot, 'fired', id FROM scheduler.runs_history WHERE schedule_id IS NOT NULL AND id < %s ON CONFLICT DO NOTHING
"""
# How a job fails: exit code, and its last line.
FAILURES = {
    "sync-crm": (1, "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable"),
    "import-orders": (2, "orders.csv: line 218: expected 9 columns, found 8"),
    "backup-db": (1, "pg_dump: error: connection to server was lost"),
    "nightly-report": (1, "ValueError: could not convert string to float: 'n/a'"),
}
Past = tuple[datetime, str, str, float]
"""When a run was due, its job, its schedule or "", about how many seconds it took."""


def _past(now: datetime) -> Iterator[Past]:
    midnight = now.astimezone(ZoneInfo(ZONE)).replace(hour=0, minute=0, second=0, microsecond=0)
    for days in range(DAYS):
        night = (midnight - timedelta(days=days)).replace(hour=3)
        yield night, "nightly-report", "nightly-report", 95.0
        yield night, "backup-db", "backup-db-nightly", 1500.0
        if days < 2:
            yield from ((night, "export-customer", f"export-{one}", 40.0) for one in CUSTOMERS)
    hour = now.replace(minute=10, second=0, microsecond=0)
    for hours in range(30):
        yield hour - timedelta(hours=hours), "rotate-logs", "rotate-logs-hourly", 6.0
    tick = now.replace(minute=0, second=0, microsecond=0)
    for ticks in range(90):
        yield tick - timedelta(minutes=20 * ticks), "sync-crm", "sync-crm-often", 210.0
    for orders in range(160):
        yield now - timedelta(minutes=9.3 * orders + 3), "import-orders", "", 18.0
    for invoices in range(5):
        yield now - timedelta(hours=5 * invoices + 2), "send-invoices", "", 75.0


def _insert_past(connection: psycopg.Connection[Any], now: datetime) -> None:
    """Runs that have ended, by the time at which they were due; about three in a hundred failed, last night's report among them."""
    chance = random.Random(7)
    connection.execute(
        "SELECT scheduler.ensure_partitions((now() - make_interval(days => %s))::date, now()::date)", [DAYS + 1]
    )
    past = sorted(
        (one for one in _past(now) if one[0] < now - timedelta(minutes=30 if one[3] > 1000 else 4)),
        key=lambda one: one[0],
    )
    last_report = max(one[0] for one in past if one[1] == "nightly-report")
    for number, (due, job, schedule, seconds) in enumerate(past):
        failed = job in FAILURES and (chance.random() < 0.04 or (job == "nightly-report" and due == last_report))
        code, line = FAILURES[job] if failed else (0, "done")
        started = due + timedelta(seconds=chance.uniform(0.1, 2.5))
        ended = started + timedelta(seconds=seconds * chance.uniform(0.7, 1.3) * (0.4 if failed else 1))
        row = {
            "id": FIRST_RUN - PAST_RUNS + number,
            "job": job,
            "schedule": schedule,
            "due": due,
            "started": started,
            "ended": ended,
        }
        row |= {"state": "FAILED" if failed else "SUCCEEDED", "code": code, "line": line}
        row |= {
            "error": f"exit code {code}" if failed else "",
            "reason": "exit_code" if failed else "",
            "executor": chance.randrange(2),
        }
        connection.execute(INSERT, row)
    connection.execute(LEDGER, [FIRST_RUN])
    connection.execute("VACUUM ANALYZE")


def _submit_forms(site: SiteClient) -> None:
    """What an administrator sets by forms, each with a reason in the audit."""
    own = {"password": PASSWORD, "again": PASSWORD}
    for reason, action, fields in (
        ("joined in May", "/new/user", {"name": "ben", "display_name": "Ben Okafor", "role": "viewer", **own}),
        ("joined in June", "/new/user", {"name": "chloe", "display_name": "Chloé Rey", "role": "editor", **own}),
        ("one group for each team", "/new/group", {"name": "finance"}),
        ("one group for each team", "/new/group", {"name": "platform"}),
        ("does the invoices", "/users/ben/join", {"group": "finance"}),
        ("on call", "/users/chloe/join", {"group": "platform"}),
        ("their own jobs", "/new/rule", {"kind": "group", "name": "finance", "effect": "allow", "role": "operator", "labels": "team=finance"}),
        ("backups are the platform's", "/new/rule", {"kind": "group", "name": "finance", "effect": "deny", "role": "operator", "job": "backup-*"}),
        ("for the mail server", "/new/secret", {"name": "smtp-password", "value": "a value for pictures", "for": "all"}),
        ("calls the person on duty", "/new/webhook", {"name": "pager", "url": "https://alerts.example.com/", "form": "generic", "state": "FAILED"}),
        ("the shop sends its orders", "/new/hook", {"name": "shop", "event_type": "orders.arrived", "rate": "60", "kind": "standard"}),
        ("the partner asked for half", "/limits/set?name=pool:warehouse", {"value": "1"}),
        ("reports of the quarter", "/settings/history_retention_days/change", {"value": "120"}),
        ("to test the trigger", "/events/emit", {"type": "orders.arrived", "payload": '{"file": "orders-2026-11-29.csv"}'}),
    ):  # fmt: skip
        site.submit(action, action, **fields, reason=reason)


def _start(admin: AdminClient) -> Filled:
    """Real runs, each in the state that its picture is about."""
    [done] = admin.start("send-invoices", payload={"customer": "acme"})
    [failed] = admin.start("nightly-report")
    [running] = admin.start("sync-crm", payload={"customers": 5000})
    admin.until(lambda: admin.run(running).state == "RUNNING", of="the run that works")
    [waiting], [_] = admin.start("sync-crm"), admin.start("backup-db")
    for one in (done, failed):
        admin.until_ended(one)
    admin.until(lambda: admin.run(waiting).state == "DEFERRED", of="the run that waits for its limit")
    asked = pb.GetRunRequest(id=running)
    admin.until(
        lambda: len(admin.call(rpc.JobReaderStub, "GetRunUsage", asked).samples) >= SAMPLES,
        of="samples of CPU and memory",
        seconds=120,
    )
    return Filled(failed=failed, running=running, waiting=waiting)
