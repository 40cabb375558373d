"""What needs attention, read from the tables: failures by job and scope, the queue, missed slots, coming fires; and for how long it is kept."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.app.cluster.overview import KEPT_SECONDS, Overviews
from toban_coordinator.server.person_check import PeopleCheck
from toban_coordinator.store.cluster import health_facts
from toban_coordinator.store.cluster import overview as store
from toban_domain.access import Effect, Person, Role, Rule, Selector
from toban_observability.context import Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import tx
from toban_testing.clock import FakeClock

INSERT = """
INSERT INTO scheduler.runs_history (id, definition_id, definition_version, job_name, schedule_id, schedule_name, origin, slot, scheduled_for, state,
                                    scope, scope_id, created_at, started_at, finished_at, error_summary, reason)
VALUES (%(id)s, COALESCE((SELECT d.id FROM scheduler.job_definitions d WHERE d.name = %(job)s), 1), 1, %(job)s,
        %(schedule_id)s, '', 'demand', %(slot)s, %(at)s, %(state)s::text::scheduler.run_state,
        %(scope)s, %(scope_id)s, %(at)s, %(at)s, %(at)s, %(error)s, %(reason)s)
"""
LEDGER = """
INSERT INTO scheduler.fire_ledger (schedule_id, first_slot, last_slot, slots, outcome, message)
VALUES (%(schedule)s, %(first)s, %(last)s, %(slots)s, %(outcome)s, %(message)s)
"""


async def ended(world: Any, number: int, state: str, *, ago: float = 60.0, **given: Any) -> None:
    """A run that ended so many seconds ago, by PostgreSQL's clock."""
    [row] = await world.sql("SELECT now() - make_interval(secs => %(s)s) AS at", s=ago)
    fields = {
        "job": "a",
        "schedule_id": None,
        "slot": None,
        "scope": "system",
        "scope_id": "",
        "error": "",
        "reason": "",
    }
    await world.sql(INSERT, id=number, state=state, at=row["at"], **{**fields, **given})


async def overview(world: Any) -> pb.Overview:
    answer: pb.Overview = await world.reader.GetOverview(pb.GetOverviewRequest(), None)
    return answer


async def schedule_id(world: Any, name: str) -> int:
    [row] = await world.sql("SELECT id FROM scheduler.schedules WHERE name = %(n)s", n=name)
    return int(row["id"])


async def test_failures_of_the_last_day_by_job_and_scope(world: Any) -> None:
    await world.sql(
        "SELECT scheduler.ensure_partitions((now() AT TIME ZONE 'UTC')::date - 3, (now() AT TIME ZONE 'UTC')::date)"
    )
    await ended(world, 1, "FAILED", ago=25 * 3600)
    await ended(world, 2, "FAILED", ago=300)
    await ended(world, 3, "TIMED_OUT", ago=200, error="took too long", reason="timeout")
    await ended(world, 4, "FAILED", ago=100, job="b", scope="account", scope_id="17")
    await ended(world, 5, "SUCCEEDED", ago=90, job="b")
    await ended(world, 6, "EXPIRED", ago=50, job="c")
    await ended(world, 7, "SUCCEEDED", ago=40, job="c")
    await ended(world, 8, "CANCELED", ago=30, job="d")
    found = await overview(world)
    shown = [
        (one.job, one.scope_id, one.runs, one.last_run_id, one.last_state, one.recovered) for one in found.failures
    ]
    assert shown == [
        ("c", "", 1, 6, "EXPIRED", True),
        ("b", "17", 1, 4, "FAILED", False),
        ("a", "", 2, 3, "TIMED_OUT", False),
    ]
    assert (found.failures[2].error_summary, found.failures[2].reason) == ("took too long", "timeout")
    assert not found.more_failures


@pytest.mark.parametrize(("limit", "value"), [("MOST_GROUPS", 1), ("MOST_READ", 1)])
async def test_more_failures_than_are_listed(
    world: Any, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(store, limit, value)
    await ended(world, 1, "FAILED", ago=20)
    await ended(world, 2, "FAILED", ago=10, job="b")
    assert (await overview(world)).more_failures


async def test_what_waits_and_for_what(world: Any, make: Any) -> None:
    await world.apply(make.job())
    runs = await world.start(count=3)
    await world.sql(
        "UPDATE scheduler.runs_live SET scheduled_for = now() - interval '400 seconds' WHERE id = %(r)s", r=runs[0]
    )
    await world.sql("UPDATE scheduler.runs_live SET not_before = now() + interval '1 hour' WHERE id = %(r)s", r=runs[1])
    found = await overview(world)
    waiting = {one.kind: (one.runs, one.oldest_seconds >= 400) for one in found.waiting}
    assert waiting == {"executor": (2, True), "retry": (1, False)}
    # Nobody beats for the leader of this test.
    assert {one.name for one in found.alerts} == {"TobanNoLeader", "TobanQueueOld"}


async def test_what_the_alert_rules_compare(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.executor()
    await world.sql("UPDATE scheduler.schedules SET status = 'failed'")
    await world.sql("UPDATE scheduler.leader SET worker_id = 7, resigned_epoch = 0")
    await world.sql("UPDATE scheduler.leader_beat SET beaten_at = now()")
    found = await overview(world)
    assert [(one.name, one.value) for one in found.alerts] == [("TobanScheduleFailed", 1)]
    await world.sql("UPDATE scheduler.executors SET state = 'cut'")
    found = await overview(world)
    assert [one.name for one in found.alerts] == ["TobanNoExecutor", "TobanExecutorLost", "TobanScheduleFailed"]


async def test_slots_without_a_run_of_their_time(world: Any, make: Any) -> None:
    await world.apply(make.job(), *(make.schedule(name) for name in ("often", "late", "calm")))
    now = world.now()
    often, late, calm = [await schedule_id(world, name) for name in ("often", "late", "calm")]
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '1 hour'")
    hour = timedelta(hours=1)
    for outcome, schedule, back, slots in (
        ("catch_up", often, 1, 4),
        ("catch_up", often, 2, 3),
        ("submit_failed", often, 30, 1),
        ("paused", calm, 1, 9),
    ):
        first = now - back * hour
        await world.sql(
            LEDGER,
            schedule=schedule,
            first=first,
            last=first,
            slots=slots,
            outcome=outcome,
            message=f"{outcome} {back}",
        )
    await ended(
        world, 9, "SKIPPED", ago=60, schedule_id=often, slot=now - hour, reason="overlap", error="one still runs"
    )
    # A person took it back: nothing is missed.
    await ended(world, 8, "SKIPPED", ago=60, schedule_id=calm, slot=now - hour, reason="withdrawn", error="paused")
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() - interval '1 minute' WHERE id = %(i)s", i=late)
    found = [(one.schedule, one.outcome, one.slots, one.message, one.run_id) for one in (await overview(world)).missed]
    assert found[0][:3] == ("late", "overdue", 1)
    assert sorted(found[1:]) == [
        ("often", "catch_up", 7, "catch_up 1", 0),
        ("often", "overlap", 1, "one still runs", 9),
    ]


async def test_coming_fires(world: Any, make: Any) -> None:
    names = ("soon", "later", "far", "paused", "off")
    # As many as are listed would come before the others, if their job were not disabled.
    idle = [make.schedule(f"idle{n}", "disabled") for n in range(20)]
    await world.apply(make.job(), make.job("disabled", enabled=False), *(make.schedule(name) for name in names), *idle)
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '5 minutes', status = 'active'")
    for name, hours in (("soon", 1), ("later", 23), ("far", 25), ("paused", 2), ("off", 3)):
        await world.sql(
            "UPDATE scheduler.schedules SET next_run_at = now() + make_interval(hours => %(h)s), enabled = %(e)s,"
            " status = CASE WHEN name = 'paused' THEN 'paused' ELSE status END WHERE name = %(n)s",
            h=hours,
            n=name,
            e=name != "off",
        )
    found = await overview(world)
    assert [(one.schedule, one.job, one.timezone) for one in found.coming] == [
        ("soon", "hello", "UTC"),
        ("later", "hello", "UTC"),
    ]
    assert found.coming_schedules == 2
    # The leader has made the run of a slot ahead.
    soon = await schedule_id(world, "soon")
    [row] = await world.sql("SELECT now() + interval '10 seconds' AS slot")
    await world.sql(
        "INSERT INTO scheduler.run_slots (schedule_id, slot, run_id) VALUES (%(i)s, %(s)s, 1)", i=soon, s=row["slot"]
    )
    assert (await overview(world)).coming[0].at.ToDatetime() == row["slot"].replace(tzinfo=None)


async def test_a_reading_is_kept_for_some_seconds(world: Any) -> None:
    clock = FakeClock()
    kept = Overviews(pool=world.pool, clock=clock, health=lambda: {"status": "ok"})
    await ended(world, 1, "FAILED")
    first = await kept.get()
    await ended(world, 2, "FAILED")
    assert await kept.get() is first
    await clock.advance(KEPT_SECONDS)
    assert [row["runs"] for row in (await kept.get()).failures.rows] == [2]


async def test_the_health_of_the_coordinator_that_answers(world: Any) -> None:
    document = {"checks": {"redis": {"status": "warning", "value": False}}}
    found = await Overviews(pool=world.pool, clock=FakeClock(), health=lambda: document).get()
    assert "TobanRedisUnreachable" in {one.name for one in found.alerts}


class OnePerson:
    """Credentials of one person, who sees what a rule allows."""

    def __init__(self, selector: Selector) -> None:
        rule = Rule(id=1, effect=Effect.ALLOW, role=Role.VIEWER, selector=selector)
        self._person = Person(name="bob", rules=(rule,))

    async def person(self, secret: str, *, address: str) -> Person:
        return self._person


@pytest.mark.parametrize(
    ("selector", "failed", "scheduled"),
    [
        (Selector(), [2, 1, 3], ["mail", "backup"]),
        (Selector(job="backup"), [1], ["backup"]),
        (Selector(scope="account", scope_id="17"), [2], []),
    ],
)
async def test_it_leaves_out_what_the_person_may_not_see(
    world: Any, make: Any, selector: Selector, failed: list[int], scheduled: list[str]
) -> None:
    jobs = ("mail", "backup")
    await world.apply(*(make.job(name) for name in jobs), *(make.schedule(name, name) for name in jobs))
    await ended(world, 1, "FAILED", ago=100, job="backup")
    await ended(world, 2, "FAILED", ago=90, job="mail", scope="account", scope_id="17")
    await ended(world, 3, "FAILED", ago=150, job="mail")
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() - interval '1 minute' * id")
    check = PeopleCheck(pool=world.pool, credentials=OnePerson(selector))  # type: ignore[arg-type]
    method = "/toban_proto.v1.JobReader/GetOverview"
    caller = Caller("192.0.2.7", "admin-web")
    admission: Any = await check.admit(
        method, caller=caller, about=pb.GetOverviewRequest, given={"toban-credential": "secret"}
    )
    seen = await admission.visible(await overview(world))
    assert [one.last_run_id for one in seen.failures] == failed
    assert sorted(one.schedule for one in seen.missed) == sorted(scheduled)
    await world.sql("UPDATE scheduler.schedules SET next_run_at = now() + interval '1 minute' * id")
    seen = await admission.visible(await overview(world))
    assert sorted(one.schedule for one in seen.coming) == sorted(scheduled) and seen.coming_schedules == 2


@pytest.mark.parametrize(
    "statement",
    [pytest.param(store._sql.alert_facts, id="dashboard"), pytest.param(health_facts._sql.work, id="health")],
)
async def test_failed_schedules_are_counted_without_a_read_of_the_others(world: Any, make: Any, statement: str) -> None:
    await world.apply(make.job("a"), make.schedule("often", "a"))
    async with tx(world.administrator) as t:
        await t._run(
            "INSERT INTO scheduler.schedules OVERRIDING SYSTEM VALUE SELECT n.* FROM scheduler.schedules s CROSS JOIN generate_series(1, 2000) i"
            " CROSS JOIN LATERAL jsonb_populate_record(s, jsonb_build_object('id', s.id + i, 'name', 'other-' || i)) n",
            {},
        )
        await t._run("ANALYZE scheduler.schedules", {})
    async with tx(world.pool) as t:
        [row] = await t.fetch_all(f"EXPLAIN (FORMAT JSON) {statement.rstrip().rstrip(';')}", prepare=False)
    scans = [node for node in _nodes(row["QUERY PLAN"][0]["Plan"]) if node.get("Relation Name") == "schedules"]
    assert scans and {scan.get("Index Name") for scan in scans} == {"schedules_failed"}, scans


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for part in node.get("Plans", []) for inner in _nodes(part))]


async def test_the_last_day_in_intervals(world: Any, make: Any) -> None:
    await world.sql(
        "SELECT scheduler.ensure_partitions((now() AT TIME ZONE 'UTC')::date - 2, (now() AT TIME ZONE 'UTC')::date)"
    )
    for number, state in enumerate(("SUCCEEDED", "SUCCEEDED", "FAILED", "EXPIRED", "CANCELED", "SKIPPED")):
        await ended(world, number + 1, state, ago=7200.0)
    await ended(world, 20, "SUCCEEDED", ago=2 * 86_400.0)
    await world.executor()
    await world.apply(make.job())
    [run] = await world.start()
    await world.turn("assign")
    await world.report(world.key(run), make.outcome())
    activity = (await overview(world)).activity
    assert len(activity) == 288 and all(
        b.begins_at.seconds - a.begins_at.seconds == 300 for a, b in itertools.pairwise(activity)
    )
    old = [one for one in activity[:-12] if one.succeeded or one.failed or one.other]
    assert [(one.succeeded, one.failed, one.other) for one in old] == [(2, 2, 1)], "what was skipped never ran"
    assert sum(one.succeeded for one in activity[-2:]) == 1
    assert any(one.HasField("wait_seconds") for one in activity[-2:]) and old[0].wait_seconds == 0.0
