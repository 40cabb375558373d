"""Freezes and thaws that executors report: onto the attempt that they hold, and as events of the run, once each (docs/fencing.md 3.7)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from toban_coordinator.app.executors.lease_grants import LeaseGrants
from toban_coordinator.server.executor_messages import freezes_from_pb
from toban_coordinator.store.executors import freezes
from toban_coordinator.store.executors.executors import Beat, Grant
from toban_coordinator.store.executors.freezes import FreezeNote
from toban_coordinator.store.placement import queued_orders
from toban_coordinator.store.runs.unresolved_attempts import Named
from toban_domain.errors import ErrorCode
from toban_domain.outcome import AttemptKey
from toban_observability import metrics
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import executor_pb2
from toban_store import queries
from toban_store.errors import StoreError
from toban_store.pool import Pool
from toban_store.tx import tx
from toban_testing.executor_rows import Sql, hold, register
from toban_transport.convert import key_to_pb, timestamp_to_pb

AT = datetime(2026, 11, 22, 3, tzinfo=UTC)


async def dispatched(world: Any, make: Any, count: int = 1) -> tuple[str, list[int]]:
    executor = await world.executor(slots=10)
    await world.apply(make.job())
    runs = await world.start(count=count)
    await world.turn("assign")
    return executor, runs


async def events(world: Any, run: int) -> list[tuple[str, str]]:
    """What readers see of it."""
    answer = await world.reader.GetRun(pb.GetRunRequest(id=run), None)
    return [(event.type, event.message) for event in answer.events if event.type in ("frozen", "thawed")]


async def stored(world: Any, run: int) -> tuple[int, float]:
    [row] = await world.sql(
        "SELECT freeze_turns, frozen_seconds FROM scheduler.job_attempts WHERE run_id = %(r)s", r=run
    )
    return row["freeze_turns"], row["frozen_seconds"]


async def test_each_turn_is_an_event_once(world: Any, make: Any) -> None:
    executor, [run, other] = await dispatched(world, make, 2)
    key = world.key(run)
    frozen = {key: FreezeNote(turns=1, seconds=12.0, turned_at=AT)}
    for _ in range(2):  # the heartbeat may come twice
        await freezes.note(world.pool, executor, frozen)
        assert await stored(world, run) == (1, 12.0)
    await freezes.note(world.pool, executor, {key: FreezeNote(turns=1, seconds=13.0)})
    assert await stored(world, run) == (1, 13.0)
    assert [kind for kind, _ in await events(world, run)] == ["frozen"]
    thawed = {key: FreezeNote(turns=2, seconds=15.24)}
    for late in (thawed, frozen):  # an older one comes last
        await freezes.note(world.pool, executor, late)
    assert [kind for kind, _ in await events(world, run)] == ["frozen", "thawed"]
    assert (await events(world, run))[1][1].endswith("frozen for 15.2 s in all")
    assert await stored(world, run) == (2, 15.24)
    assert await events(world, other) == []
    [row] = await world.sql("SELECT metadata FROM scheduler.job_events WHERE type = 'frozen' AND run_id = %(r)s", r=run)
    assert row["metadata"] == {
        "token": str(key.token),
        "frozen_seconds": 12.0,
        "turned_at": "2026-11-22T03:00:00+00:00",
    }


async def test_turns_between_two_heartbeats_are_all_there_in_order(world: Any, make: Any) -> None:
    executor, [run] = await dispatched(world, make)
    await freezes.note(world.pool, executor, {world.key(run): FreezeNote(turns=4, seconds=9.0)})
    assert [kind for kind, _ in await events(world, run)] == ["frozen", "thawed"] * 2


async def test_only_the_executor_that_holds_the_attempt_is_believed(world: Any, make: Any) -> None:
    executor, [run] = await dispatched(world, make)
    key, other, one = world.key(run), await world.executor(2), FreezeNote(turns=1, seconds=1.0)
    await freezes.note(world.pool, other, {key: one})
    await freezes.note(world.pool, executor, {AttemptKey(run, key.token + 1): one})
    assert await stored(world, run) == (0, 0.0)
    await world.report(key, make.outcome())
    await freezes.note(world.pool, executor, {key: one})
    assert await stored(world, run) == (0, 0.0), "it has ended"
    assert await events(world, run) == []


OTHER_DAYS = """
INSERT INTO scheduler.job_attempts (log_day, run_id, token, attempt, leader_epoch, incarnation, worker_id, dispatched_at)
SELECT day::date, 1000000 + i, i, 1, 1, %(e)s::uuid, 1, now()
  FROM generate_series(current_date - 5, current_date, interval '1 day') AS day, generate_series(1, 500) AS i
"""


@pytest.mark.parametrize("analyzed", [False, True])
async def test_only_the_day_of_the_attempt_is_read(world: Any, make: Any, analyzed: bool) -> None:
    """Each day is a partition, and their rows are kept for months."""
    executor, runs = await dispatched(world, make, 3)
    await world.sql("SELECT scheduler.ensure_partitions(current_date - 5, current_date)")
    await world.sql(OTHER_DAYS, e=executor)
    if analyzed:
        await world.sql("ANALYZE scheduler.runs_live")
        await world.sql("ANALYZE scheduler.job_attempts")
    notes = [{"run_id": run, "token": world.key(run).token, "turns": 1, "seconds": 1.0} for run in runs]
    asked = {"notes": json.dumps(notes), "incarnation": executor}
    for mode in ("force_custom_plan", "force_generic_plan"):
        async with tx(world.pool) as t:
            await t.execute("UPDATE scheduler.job_attempts SET freeze_turns = 0")
            await t.execute(f"SET LOCAL plan_cache_mode = {mode}")
            [row] = await t.fetch_all(f"EXPLAIN (ANALYZE, FORMAT JSON) {queries.load(freezes.__name__).note}", asked)
        read = scanned(row["QUERY PLAN"][0]["Plan"], "job_attempts_")
        assert len(read) == 1, row


def scanned(plan: dict[str, Any], prefix: str) -> set[str]:
    """Tables of this prefix that the plan has looked into."""
    name = str(plan.get("Relation Name", ""))
    own = {name} if "Scan" in plan["Node Type"] and name.startswith(prefix) and plan["Actual Loops"] else set()
    return own.union(*(scanned(part, prefix) for part in plan.get("Plans", ())))


@pytest.mark.parametrize(
    ("turns", "seconds", "kept"),
    [
        (1, 2.5, True),
        (0, 0.0, False),
        (-1, 1.0, False),
        (1 << 30, 1.0, False),
        (1, float("nan"), False),
        (1, float("inf"), False),
        (1, 1e300, False),
        (1, -1.0, False),
    ],
)
def test_what_cannot_be_is_left_out(turns: int, seconds: float, kept: bool) -> None:
    key = AttemptKey(1, 101)
    item = executor_pb2.HeldAttempt(key=key_to_pb(key), freeze_turns=turns, frozen_seconds=seconds)
    item.freeze_turned_at.CopyFrom(timestamp_to_pb(AT))
    found = freezes_from_pb(pb.HeartbeatRequest(held=[item]))
    assert found == ({key: FreezeNote(turns=turns, seconds=seconds, turned_at=AT)} if kept else {})


async def test_a_frozen_job_goes_on_only_with_the_list_of_what_is_not_held(
    pool: Pool, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the list the grants of others stand; an executor with frozen jobs asks again."""
    frozen, other = await register(pool), await register(pool, instance="x2")
    keys = [AttemptKey(await hold(sql, name, "RUNNING", 71), 71) for name in (frozen, other)]
    granter, named = LeaseGrants(pool=pool), Named()

    async def fails(*_args: Any) -> None:
        raise StoreError(ErrorCode.UNAVAILABLE, "no answer")

    async def beat(incarnation: str, echo: int, held: AttemptKey, *, frozen: bool) -> Grant:
        answer = await granter.heartbeat(Beat(incarnation=incarnation, echo=echo), [held], named, frozen=frozen)
        assert answer.grant is not None
        return answer.grant

    def counted(result: str) -> float:
        return metrics.REGISTRY.get_sample_value("toban_grants_total", {"result": result}) or 0.0

    before = counted("granted"), counted("withheld")
    with monkeypatch.context() as patched:
        patched.setattr(queued_orders, "updates", fails)
        without = await beat(frozen, 0, keys[0], frozen=True)
        assert not without.granted
        assert (await beat(other, 0, keys[1], frozen=False)).granted
    assert (counted("granted"), counted("withheld")) == (before[0] + 1, before[1] + 1)
    assert (await beat(frozen, without.grant_seq, keys[0], frozen=True)).granted
