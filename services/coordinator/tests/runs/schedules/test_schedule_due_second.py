"""A schedule that is edited at its due second loses and doubles nothing.

The leader's loops fire and dispatch as they do in production; several operators change the same schedules at once, within milliseconds of due
instants: other rules and back, pause and resume, disable and enable, delete and make anew. Afterwards the log of the operators' actions tells
which version of a schedule counted from when until when, and every due slot of every version must have exactly one run or one named row.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.loops.fire import Fire
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.schedule import ScheduleSpec
from toban_schedule import Rule, slots

SCHEDULES = 5
OPERATORS = 3
EDITS_SECONDS = 6
# The leader's clock is ahead of PostgreSQL's by this: it sends runs before their slots have come for an edit.
AHEAD = timedelta(milliseconds=150)
RULES = [
    {"interval_seconds": 1},
    {"interval_seconds": 2},
    {"cron": "1-59/2 * * * * *", "timezone": "Asia/Kathmandu"},
    {"cron": "*/3 * * * * *", "timezone": "America/New_York"},
]
KINDS = {"rule", "pause", "resume", "enabled", "delete", "anew"}
# What two operators may tell each other when they meet.
MEETINGS = {
    ErrorCode.CONFLICT,
    ErrorCode.RESOURCE_INVALID_STATE,
    ErrorCode.SCHEDULE_NOT_FOUND,
    ErrorCode.ALREADY_EXISTS,
    # Its lock was not to be had in time: nothing of it happened.
    ErrorCode.DEADLINE_EXCEEDED,
}


@dataclass(frozen=True)
class Version:
    """A schedule as it was for its slots in (after, until]; `early`: slots up to there may have been sent before the edit."""

    rule: Rule
    status: str
    enabled: bool
    after: datetime
    until: datetime
    early: datetime

    def due(self) -> list[datetime]:
        return slots(self.rule, self.after, self.until, 10_000) if self.enabled else []


class Operator:
    """Changes schedules at random, as close to due instants as it can."""

    def __init__(self, world: Any, desk: Any, make: Any, seed: int) -> None:
        self.world, self.desk, self.make = world, desk, make
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()

    async def work(self, until: datetime, enough: Callable[[], bool]) -> None:
        """Until then, and on a slow machine until enough has been done."""
        while (now := datetime.now(UTC)) < until or not enough():  # noqa: TID251 (due instants are of the real clock)
            # Around the next second, when everything is due: before or after the leader sends its runs.
            due = now.replace(microsecond=0) + timedelta(seconds=1)
            aim = due + timedelta(milliseconds=self.random.uniform(-180, 30))
            await asyncio.sleep(max(0.0, (aim - now).total_seconds()))
            for _ in range(2):
                await self.edit(f"s{self.random.randrange(SCHEDULES)}")

    async def edit(self, name: str) -> None:
        kind = self.random.choice(["rule", "rule", "pause", "resume", "resume", "enabled", "delete"])
        try:
            if kind in ("pause", "resume"):
                await getattr(self.desk, kind)(name)
            elif kind == "delete":
                await self.desk.delete(name)
                self.done["delete"] += 1
                await self.apply(name)
                kind = "anew"
            else:
                await self.apply(name, enabled=kind == "rule" or self.random.random() < 0.5)
        except TobanError as error:
            assert error.code in MEETINGS, error
            kind = "met"
        self.done[kind] += 1
        self.world.loops["fire"].wake()
        self.world.loops["assign"].wake()

    async def apply(self, name: str, *, enabled: bool = True) -> None:
        manifest = self.make.schedule(name)
        del manifest["spec"]["interval_seconds"]
        await self.world.apply({**manifest, "spec": {"job": "hello", "enabled": enabled, **self.random.choice(RULES)}})


async def versions(world: Any, end: datetime) -> dict[str, list[Version]]:
    """Every version of every schedule, from the log."""
    found: dict[str, list[Version]] = {}
    rows = await world.sql("SELECT at, action, target, before, after FROM scheduler.admin_action_log ORDER BY id")
    now: dict[str, dict[str, Any]] = {}
    for row in rows:
        name, after = row["target"].removeprefix("schedule "), row["after"]
        if not row["target"].startswith("schedule "):
            continue
        if row["before"] is not None:
            was = now[name]
            assert row["before"]["version"] == was["version"], "each edit follows the one before"
            until, early = (moment_of(one["slots"]) for one in (row["before"], after))
            assert row["at"] <= until <= early < until + timedelta(seconds=1), "it counts from the moment of the edit"
            found.setdefault(name, []).append(version(was, until, early))
        if row["action"] == "schedule.delete":
            del now[name]
            continue
        kept = now.get(name, {"status": "active"})
        now[name] = {**kept, **after}
    for name, was in now.items():
        found.setdefault(name, []).append(version(was, end, end))
    return found


def version(was: dict[str, Any], until: datetime, early: datetime) -> Version:
    spec = ScheduleSpec.from_json(was["spec"])
    return Version(Rule.of(spec.rule), was["status"], spec.enabled, moment_of(was["slots"]), until, early)


def moment_of(slots: str) -> datetime:
    return datetime.fromisoformat(slots.split()[1])


def slowly(write: Any) -> Any:
    """A leader that is held up between planning and writing: what it has read may be old by then."""

    async def slow(*args: Any) -> Any:
        await asyncio.sleep(0.03)
        return await write(*args)

    return slow


async def settled(world: Any, until: datetime) -> None:
    """Waits until every slot up to then is settled."""
    async with asyncio.timeout(60):
        while await world.sql(
            "SELECT 1 FROM scheduler.schedules WHERE enabled AND status = 'active' AND next_run_at <= %(u)s", u=until
        ):
            world.loops["fire"].wake()
            await asyncio.sleep(0.05)


async def beat(world: Any) -> None:
    """The executor's heartbeat."""
    while True:
        await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now()")
        await asyncio.sleep(0.5)


# Turns and edits wait for each other in both orders: the bound of a lock, not PostgreSQL's search for deadlocks, ends such a wait.
@pytest.mark.usefixtures("production_bounds")
@pytest.mark.parametrize("ahead", [0, 2])
async def test_edits_at_the_due_second_lose_and_double_nothing(
    world: Any, make: Any, desk: Any, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr(Fire, "_write_all", slowly(Fire._write_all))
    world.settings.set(assign_ahead_seconds=ahead)
    world.time.offset = AHEAD
    await world.executor(slots=5000)
    await world.apply(make.job(concurrency={"policy": "allow"}), *[make.schedule(f"s{n}") for n in range(SCHEDULES)])
    operators = [Operator(world, desk, make, ahead * 100 + number) for number in range(OPERATORS)]

    def done() -> Counter[str]:
        return sum((operator.done for operator in operators), Counter())

    stop = asyncio.Event()
    loops = [asyncio.create_task(world.loops[name].run(stop)) for name in ("fire", "assign", "dispatch")]
    heart = asyncio.create_task(beat(world))
    try:
        end = datetime.now(UTC) + timedelta(seconds=EDITS_SECONDS)  # noqa: TID251
        async with asyncio.timeout(60):
            await asyncio.gather(*(operator.work(end, lambda: set(done()) >= KINDS) for operator in operators))
        until = (await world.sql("SELECT clock_timestamp() AS now"))[0]["now"]
        for n in range(SCHEDULES):
            # The slots of pauses under way are told at the resume.
            with suppress(TobanError):
                await desk.resume(f"s{n}")
        await settled(world, until)
    finally:
        stop.set()
        heart.cancel()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, heart, return_exceptions=True)
    assert world.orders.starts, "the leader has dispatched meanwhile"
    await check(world, until)


async def check(world: Any, until: datetime) -> None:
    ids = await world.sql(
        "SELECT id, name FROM scheduler.schedules UNION ALL SELECT id, name FROM scheduler.schedules_deleted"
    )
    names = {row["id"]: row["name"] for row in ids}
    ledger = await world.sql("SELECT * FROM scheduler.fire_ledger WHERE outcome <> 'withdrawn' ORDER BY first_slot")
    runs = await world.sql(
        "SELECT id, schedule_id, schedule_name, slot, reason FROM scheduler.job_runs WHERE reason <> 'withdrawn'"
    )
    doubled = [key for key, count in Counter((run["schedule_name"], run["slot"]) for run in runs).items() if count > 1]
    assert doubled == []
    sent = Counter(order.key.run_id for _, order in world.orders.starts)
    assert set(sent.values()) == {1} and set(sent) <= {run["id"] for run in runs}, "no run that was taken back was sent"
    by_slot = {(run["schedule_name"], run["slot"]): run["id"] for run in runs}
    told = await versions(world, until)
    counted: Counter[tuple[int, datetime]] = Counter()
    allowed: set[tuple[str, datetime]] = set()
    for name, history in told.items():
        for one in history:
            allowed |= {(name, slot) for slot in slots(one.rule, one.until, max(one.early, one.until), 100)}
            for slot in one.due():
                rows = [
                    row
                    for row in ledger
                    if names[row["schedule_id"]] == name and row["first_slot"] <= slot <= row["last_slot"]
                ]
                assert len(rows) == 1, f"{name} {slot} {one}\n" + "\n".join(map(str, rows))
                [row] = rows
                counted[row["schedule_id"], row["first_slot"]] += 1
                allowed.add((name, slot))
                if one.status == "paused":
                    assert row["outcome"] == "paused", (name, slot, row)
                else:
                    assert row["outcome"] == "fired" and by_slot[name, slot] == row["run_id"], (name, slot, row)
    for row in ledger:
        if row["last_slot"] <= until and (names[row["schedule_id"]], row["first_slot"]) in allowed:
            wanted = counted[row["schedule_id"], row["first_slot"]]
            assert row["slots"] == wanted or (row["slots"] == 1 and wanted == 0), row
    stray = [key for key in by_slot if key[1] <= until and key not in allowed]
    assert stray == [], "a run for a slot that no version had"
