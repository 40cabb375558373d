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
from toban_testing.stack_fixtures import sql

SCHEDULES = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
POLL = 0.02
# Rows are looked for at most this long after the slot, seconds.
WAIT_SECONDS = 120.0


def main() -> None:
    """Apply the schedules, let them come due twice, and print the lags."""
    with whole_stack() as (stack, admin):
        admin.apply(job("bench-true", ["/bin/true"]))
        for ahead in (0, 30):
            set_ahead(stack, ahead)
            slot = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=45 + SCHEDULES // 400)
            cron = f"{slot.second} {slot.minute} {slot.hour} * * *"
            for batch in schedules(SCHEDULES, job="bench-true", prefix=f"ahead-{ahead}", cron=cron):
                admin.apply(*batch, timeout=60.0)
            early = (slot - datetime.now(UTC)).total_seconds()
            if early < 1:
                raise SystemExit(f"applying took too long: {-early:.1f} s past the slot; give fewer schedules")
            seen = watch(stack, slot)
            print(json.dumps(figure(seen, ahead)), flush=True)
            sql(stack, "UPDATE scheduler.schedules SET enabled = false, version = version + 1")


def set_ahead(stack: Stack, seconds: int) -> None:
    """How early rows are made."""
    sql(
        stack,
        "INSERT INTO scheduler.settings (name, value) VALUES ('assign_ahead_seconds', %(value)s::text::jsonb)"
        " ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, version = scheduler.settings.version + 1",
        value=str(seconds),
    )


def watch(stack: Stack, slot: datetime) -> dict[str, list[tuple[float, int]]]:
    """(seconds since the slot, how many) of rows that are visible, and of runs that have started, until all have or WAIT_SECONDS have passed."""
    seen: dict[str, list[tuple[float, int]]] = {"rows": [], "started": []}
    since = 0.0
    while since < WAIT_SECONDS:
        counts = look(stack, slot)
        since = time.time() - slot.timestamp()
        for kind, count in counts.items():
            seen[kind].append((since, count))
        if counts["started"] >= SCHEDULES:
            break
        time.sleep(POLL if counts["rows"] < SCHEDULES else 0.25)
    return seen


def look(stack: Stack, slot: datetime) -> dict[str, int]:
    """Rows of this slot, and runs of it that have begun or ended."""
    [rows] = sql(stack, "SELECT count(*) AS n FROM scheduler.run_slots WHERE slot = %(slot)s", slot=slot)
    if rows["n"] < SCHEDULES:
        return {"rows": rows["n"], "started": 0}
    [begun] = sql(
        stack, "SELECT count(*) AS n FROM scheduler.job_runs WHERE slot = %(s)s AND started_at IS NOT NULL", s=slot
    )
    return {"rows": rows["n"], "started": begun["n"]}


def figure(seen: dict[str, list[tuple[float, int]]], ahead: int) -> dict[str, Any]:
    """The line of one pass."""
    rows = {f"row_p{share}_s": reached(seen["rows"], share) for share in (50, 90, 99)}
    last = reached(seen["started"], 100)
    return {"bench": "due_schedules", "schedules": SCHEDULES, "ahead_seconds": ahead, **rows, "start_all_s": last}


def reached(points: list[tuple[float, int]], share: int) -> float | None:
    """Seconds after the slot at which `share` percent were seen first; None when they never were."""
    at = next((at for at, count in points if count * 100 >= SCHEDULES * share), None)
    return None if at is None else round(at, 3)


if __name__ == "__main__":
    main()
