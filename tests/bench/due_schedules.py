"""Many schedules due in one second: from their slot to the moment when their run rows are committed and visible.

Usage: due_schedules.py [SCHEDULES]; prints two JSON lines. `ahead_seconds` 0: nothing is made before the slot, which is what an event or a new
schedule meets; 30, the default: rows are made before their slot, so that the lag is below zero. `start_all_s`: until all have started.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from bench_stack import job, schedules, whole_stack

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import sql

POLL = 0.02
# Rows are looked for at most this long after the slot, seconds.
WAIT_SECONDS = 120.0
# Of rows and of runs: seconds since the slot, and how many there are.
Seen = dict[str, list[tuple[float, int]]]


def main() -> None:
    """Apply the schedules, let them come due twice, and print the lags."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with whole_stack() as (stack, admin):
        admin.apply(job("bench-true", ["/bin/true"]))
        for ahead in (0, 30):
            set_ahead(stack, ahead)
            seen = come_due(stack, admin, count, prefix=f"ahead-{ahead}")
            print(json.dumps(figure(seen, count, ahead)), flush=True)


def come_due(stack: Stack, admin: AdminClient, count: int, *, prefix: str) -> Seen:
    """Apply `count` schedules of one second, whose names begin with `prefix`, and watch them come due."""
    slot = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=45 + count // 400)
    cron = f"{slot.second} {slot.minute} {slot.hour} * * *"
    for batch in schedules(count, job="bench-true", prefix=prefix, cron=cron):
        admin.apply(*batch, timeout=60.0)
    early = (slot - datetime.now(UTC)).total_seconds()
    if early < 1:
        raise SystemExit(f"applying took too long: {-early:.1f} s past the slot; give fewer schedules")
    seen = watch(stack, slot, count)
    sql(stack, "UPDATE scheduler.schedules SET enabled = false, version = version + 1")
    return seen


def set_ahead(stack: Stack, seconds: int) -> None:
    """How early rows are made."""
    sql(
        stack,
        "INSERT INTO scheduler.settings (name, value) VALUES ('assign_ahead_seconds', %(value)s::text::jsonb)"
        " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, version = scheduler.settings.version + 1",
        value=str(seconds),
    )


def watch(stack: Stack, slot: datetime, count: int) -> Seen:
    """(seconds since the slot, how many) of rows that are visible, and of runs that have started, until all have or WAIT_SECONDS have passed."""
    seen: Seen = {"rows": [], "started": []}
    since = 0.0
    while since < WAIT_SECONDS:
        counts = look(stack, slot, count)
        since = time.time() - slot.timestamp()
        for kind, number in counts.items():
            seen[kind].append((since, number))
        if counts["started"] >= count:
            break
        time.sleep(POLL if counts["rows"] < count else 0.25)
    return seen


def look(stack: Stack, slot: datetime, count: int) -> dict[str, int]:
    """Rows of this slot, and runs of it that have begun or ended."""
    [rows] = sql(stack, "SELECT count(*) AS n FROM scheduler.run_slots WHERE slot = %(slot)s", slot=slot)
    if rows["n"] < count:
        return {"rows": rows["n"], "started": 0}
    [begun] = sql(
        stack, "SELECT count(*) AS n FROM scheduler.job_runs WHERE slot = %(s)s AND started_at IS NOT NULL", s=slot
    )
    return {"rows": rows["n"], "started": begun["n"]}


def figure(seen: Seen, count: int, ahead: int) -> dict[str, Any]:
    """The line of one pass."""
    rows = {f"row_p{share}_s": reached(seen["rows"], share, count) for share in (50, 90, 99)}
    last = reached(seen["started"], 100, count)
    return {"bench": "due_schedules", "schedules": count, "ahead_seconds": ahead, **rows, "start_all_s": last}


def reached(points: list[tuple[float, int]], share: int, count: int) -> float | None:
    """Seconds after the slot at which `share` percent were seen first; None when they never were."""
    at = next((at for at, number in points if number * 100 >= count * share), None)
    return None if at is None else round(at, 3)


if __name__ == "__main__":
    main()
