"""What a turn of loop `assign` reads while runs wait for slots: free slots and due runs by one statement, where it says the same as two."""

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from toban_coordinator.decide.placement import prefetch
from toban_coordinator.decide.placement.prefetch import Prefetch
from toban_coordinator.loops import assign
from toban_coordinator.loops.assign import BATCH
from toban_coordinator.loops.due_reads import SPARE
from toban_coordinator.store.placement import runs_assign
from toban_domain.placement import DueRun
from toban_store.tx import Tx, autocommit, tx
from toban_testing.variants import undone

READS = ("executor_loads", "loads_and_due", "due_runs")
JOBS = ["hello", "other"]
QUEUE = """
INSERT INTO scheduler.runs_live (definition_id, definition_version, job_name, origin, scheduled_for, not_before, state, priority, catch_up, scope,
                                 scope_id, worker_type, payload, assigned_incarnation, token, dispatched_at, deferred_on)
SELECT d.id, d.version, d.name, 'demand', %(now)s + r.seconds * interval '1 s', %(now)s + r.again * interval '1 s',
       (CASE WHEN r.state IN ('ahead', 'sent') THEN 'ASSIGNED' ELSE r.state END)::scheduler.run_state, r.priority, r.catch_up, 'account', r.scope_id,
       CASE WHEN r.external THEN 'model' END, jsonb_build_object('n', r.n),
       CASE WHEN r.state IN ('ahead', 'sent') THEN ('00000000-0000-4000-8000-00000000000' || r.executor)::uuid END,
       CASE WHEN r.state = 'sent' THEN r.n END, CASE WHEN r.state = 'sent' THEN now() END, CASE WHEN r.state = 'DEFERRED' THEN 'pool:p' END
  FROM jsonb_to_recordset(%(runs)s::jsonb)
       AS r(n bigint, job text, state text, seconds integer, again integer, priority integer, catch_up boolean, scope_id text, external boolean,
            executor text)
  JOIN scheduler.job_definitions d ON d.name = r.job
"""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each read was sent."""
    counts: Counter[str] = Counter()
    for name in READS:
        read = getattr(runs_assign, name)

        async def counted(*arguments: Any, read: Any = read, name: str = name, **named: Any) -> Any:
            counts[name] += 1
            return await read(*arguments, **named)

        monkeypatch.setattr(runs_assign, name, counted)
    return counts


async def executor(world: Any, number: int = 1, **given: Any) -> None:
    """One whose heartbeat is fresh for the whole test."""
    await world.executor(number, **given)
    await world.sql("UPDATE scheduler.executors SET last_heartbeat_at = now() + interval '1 hour'")


async def placed(world: Any) -> list[int]:
    rows = await world.sql("SELECT id FROM scheduler.runs_live WHERE dispatched_at IS NOT NULL ORDER BY id")
    return [row["id"] for row in rows]


async def test_one_statement_reads_slots_and_runs_while_runs_wait(world: Any, make: Any, reads: Any) -> None:
    await executor(world, slots=2)
    await world.apply(make.job())
    runs = await world.start(count=5)
    await world.turn("assign")
    assert await placed(world) == runs[:2]
    reads.clear()
    await world.turn("assign")
    assert await placed(world) == runs[:2]
    await world.report(world.key(runs[0]), make.outcome())
    await world.turn("assign")
    assert await placed(world) == [runs[1], runs[2]]
    assert reads == {"loads_and_due": 2}


async def test_turns_soon_after_each_other_look_ahead_once(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[datetime] = []
    outlook = runs_assign.outlook

    async def noted(t: Tx, now: datetime, until: datetime) -> Any:
        looks.append(now)
        return await outlook(t, now, until)

    monkeypatch.setattr(runs_assign, "outlook", noted)
    monkeypatch.setattr(assign, "FREE_LOOK_AHEAD_SECONDS", 60.0)
    await executor(world, slots=10)
    await world.apply(make.job())
    [later] = await world.start()
    await world.sql(
        "UPDATE scheduler.runs_live SET scheduled_for = now() + interval '9 s', not_before = now() + interval '9 s' WHERE id = %(id)s",
        id=later,
    )
    for _ in range(3):
        await world.start()
        done = await world.turn("assign")
    assert len(looks) == 1 and len(await placed(world)) == 3
    assert done.next_in is not None and 0 < done.next_in <= 9, "what the last look has found is not forgotten"


async def test_a_drained_executor_gets_none_of_what_waits(world: Any, make: Any, reads: Any) -> None:
    await executor(world, slots=1)
    await world.apply(make.job())
    [first, _] = await world.start(count=2)
    await world.turn("assign")
    await world.sql(
        "INSERT INTO scheduler.executor_drains (instance, actor) SELECT instance, 'ada' FROM scheduler.executors"
    )
    await world.report(world.key(first), make.outcome())
    await world.turn("assign")
    assert reads["loads_and_due"] == 1
    assert await placed(world) == []


async def test_a_definition_that_fits_some_executors_only_holds_up_no_other(world: Any, make: Any, reads: Any) -> None:
    """While the executor that fits is full its runs are left out of the read, so that it shows the others."""
    await executor(world, 1, slots=1)
    await executor(world, 2, slots=1, labels={"gpu": "yes"})
    await world.apply(make.job("gpu", selector={"labels": {"gpu": "yes"}}), make.job())
    wanting = await world.start("gpu", count=SPARE * 2)
    await world.turn("assign")
    assert await placed(world) == wanting[:1]
    [other] = await world.start()
    reads.clear()
    await world.turn("assign")
    assert await placed(world) == [wanting[0], other]
    assert reads["loads_and_due"] == 0


@pytest.mark.parametrize(
    "concurrency", [{"start_rate": {"runs": 1000, "per_seconds": 60}}, {"limit": 2}, {"policy": "queue"}]
)
async def test_runs_that_may_not_wait_at_an_executor_keep_no_place_there_from_others(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch, concurrency: dict[str, Any]
) -> None:
    await executor(world, slots=1)
    [incarnation] = world.incarnations
    monkeypatch.setattr(Prefetch, "depths", lambda *_: {incarnation: 3})
    await world.apply(make.job("held-back", concurrency=concurrency), make.job())
    first, *_ = await world.start("held-back", count=2 if "limit" in concurrency else SPARE * 2)
    await world.turn("assign")
    assert await placed(world) == [first]
    others = []
    for _ in range(3):
        others += await world.start()
        await world.turn("assign")
    assert await placed(world) == [first, *others]


async def test_a_run_that_may_not_wait_at_an_executor_gets_a_slot_before_those_that_came_later(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While quick runs wait at the executor, each slot that becomes free is theirs."""
    await executor(world, slots=1)
    [incarnation] = world.incarnations
    monkeypatch.setattr(Prefetch, "depths", lambda *_: {incarnation: 2})
    monkeypatch.setattr(prefetch, "PASSED_OVER_SECONDS", 0.0)
    await world.apply(make.job("serial", concurrency={"policy": "queue"}), make.job())
    quick = await world.start(count=3)
    await world.turn("assign")
    assert await placed(world) == quick
    [needing] = await world.start("serial")
    await world.turn("assign")
    later = await world.start(count=5)
    for run in quick:
        await world.report(world.key(run), make.outcome())
        await world.turn("assign")
    assert await placed(world) == [needing]
    await world.report(world.key(needing), make.outcome())
    for _ in range(2):
        await world.turn("assign")
    assert await placed(world) == later[:3], "nothing needs a slot any more"


async def test_many_definitions_without_room_do_not_keep_a_free_slot_from_another(world: Any, make: Any) -> None:
    await executor(world, 1, slots=1)
    await executor(world, 2, slots=1, labels={"gpu": "yes"})
    fitting = [make.job(f"gpu{n}", selector={"labels": {"gpu": "yes"}}) for n in range(10)]
    await world.apply(make.job(), *fitting)
    first, other = [*await world.start("gpu0"), *await world.start()]
    await world.turn("assign")
    waiting = [*[run for n in range(1, 10) for run in await world.start(f"gpu{n}")], *await world.start()]
    await world.turn("assign")
    assert await placed(world) == [first, other]
    for run in (first, other):
        await world.report(world.key(run), make.outcome())
    # The first turn finds that only one of the nine has room; the second one looks past them.
    await world.turn("assign")
    await world.turn("assign")
    assert await placed(world) == [waiting[0], waiting[-1]]


async def test_ranks_that_differ_are_read_the_long_way(world: Any, make: Any, reads: Any) -> None:
    await executor(world, slots=1)
    await world.apply(make.job(), make.job("urgent", priority=1))
    first, second = await world.start(count=2)
    await world.turn("assign")
    [urgent] = await world.start("urgent")
    await world.report(world.key(first), make.outcome())
    reads.clear()
    await world.turn("assign")
    assert await placed(world) == [urgent]
    assert reads == {"loads_and_due": 1, "due_runs": 1}
    await world.report(world.key(urgent), make.outcome())
    await world.turn("assign")
    assert await placed(world) == [second]


async def test_tenants_whose_runs_are_not_due_do_not_hide_a_due_run(world: Any, make: Any) -> None:
    await executor(world, slots=1)
    await world.apply(make.job())
    [due] = await world.start(scope="account", scope_id="m")
    async with tx(world.administrator) as t:
        await t._run(
            "INSERT INTO scheduler.runs_live SELECT n.* FROM scheduler.runs_live r CROSS JOIN generate_series(1, 2 * %(batch)s) i"
            " CROSS JOIN LATERAL jsonb_populate_record(r, jsonb_build_object("
            "'id', r.id + i, 'scope_id', CASE i WHEN 1 THEN 'z' ELSE 'a' || i END, 'scheduled_for', r.scheduled_for + interval '1 hour')) n"
            " WHERE r.id = %(id)s",
            {"id": due, "batch": BATCH},
        )
    await world.turn("assign")
    assert await placed(world) == [due]


@st.composite
def queues(draw: st.DrawFn) -> dict[str, Any]:
    """Runs in each state that a reader meets, and the parameters of the reads; some of the queues have one rank and scope."""
    scopes, priorities = draw(st.sampled_from([("a", [0]), ("abc", [0]), ("a", [0, 1]), ("ab", [0, 1])]))
    run = st.fixed_dictionaries(
        {
            "job": st.sampled_from(JOBS),
            "state": st.sampled_from(["PENDING"] * 4 + ["ahead", "sent", "DEFERRED"]),
            "seconds": st.sampled_from([-2, -1, 0, 0, 1]),
            "again": st.sampled_from([None, None, None, -1, 1]),
            "priority": st.sampled_from(priorities),
            "catch_up": st.booleans() if len(priorities) > 1 else st.just(False),
            "scope_id": st.sampled_from(scopes),
            "external": st.booleans(),
            "executor": st.integers(1, 2),
        }
    )
    executor_state = st.tuples(st.integers(1, 3), st.sampled_from(["on", "on", "on", "draining", "off"]), st.booleans())
    return {
        "runs": draw(st.lists(run, min_size=draw(st.sampled_from([0, 8])), max_size=20)),
        "executors": draw(st.tuples(executor_state, executor_state)),
        "limit": draw(st.integers(1, 4)),
        "beside": draw(st.integers(0, 3)),
        "blocked": draw(st.sets(st.sampled_from(JOBS), max_size=1)),
        "after": draw(st.sampled_from([("", ""), ("account", "a"), ("account", "b")])),
    }


_RUN = {
    "job": "hello",
    "state": "PENDING",
    "again": None,
    "priority": 0,
    "catch_up": False,
    "external": False,
    "executor": 1,
}
# More scopes than `limit` come before the one with due runs.
HIDDEN: dict[str, Any] = {
    "runs": [
        {**_RUN, "scope_id": scope, "seconds": seconds} for scope, seconds in (("a", 1), ("b", 1), ("c", 0), ("c", 0))
    ],
    "executors": ((1, "on", False), (1, "on", False)),
    "limit": 2,
    "beside": 0,
    "blocked": set(),
    "after": ("", ""),
}


# Fewer runs are due than are looked for, all of one scope; the last run of all has another one, and is not due.
LAST_NOT_DUE: dict[str, Any] = {
    **HIDDEN,
    "runs": [{**_RUN, "scope_id": "a", "seconds": -1}, {**_RUN, "scope_id": "b", "seconds": 1}],
    "executors": ((4, "on", False), (4, "on", False)),
    "limit": 4,
}

# So many scopes of several ranks that a sort by rank alone changes the order of those of one rank.
MANY_RANKS: dict[str, Any] = {
    **HIDDEN,
    "runs": [
        {**_RUN, "seconds": -2, "priority": priority, "catch_up": catch_up, "scope_id": scope}
        for priority, catch_up, scope in (
            *[(0, False, scope) for scope in "ab"],
            *[(0, True, scope) for scope in "ab"],
            *[(1, False, scope) for scope in "ab"],
            (1, True, "a"),
        )
    ],
    "limit": 1,
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=queues())
@example(case=HIDDEN)
@example(case=LAST_NOT_DUE)
@example(case=MANY_RANKS)
async def test_all_readers_of_due_runs_read_the_same(two_executors: Any, case: dict[str, Any]) -> None:
    """What the shorter reads answer is a part of the long read without a limit, which has every due run."""
    world, limit = two_executors, case["limit"]
    async with tx(world.administrator) as t, undone(t):
        now = world.now()
        jobs = await queue(t, case, now)
        blocked = [(jobs[job], 1) for job in case["blocked"]]
        whole, *_ = await runs_assign.due_runs(t, now, limit=100, blocked=blocked)
        due = [n for n, run in enumerate(case["runs"]) if is_due(run) and run["job"] not in case["blocked"]]
        assert sorted(number(run) for run in whole) == due

        long, *_ = await runs_assign.due_runs(t, now, limit=limit, blocked=blocked, after=case["after"])
        waiting = {rank_and_scope(run) for run in case["runs"] if run["state"] == "PENDING"}
        assert len(long) >= min(limit, len(whole))
        assert list(by_scope(whole)) == sorted(by_scope(whole), key=lambda scope: (-scope[0], scope[1]))
        for scope, runs in by_scope(long).items():
            assert runs == by_scope(whole)[scope][: len(runs)]

        short, alone, _ = await runs_assign.due_runs(t, now, limit=limit, blocked=blocked, one_scope=True)
        if alone:
            assert len(by_scope(whole)) <= 1 and short == first(whole, pending=limit, ahead=limit)
        assert alone or len(waiting) > 1

        offers = await runs_assign.due_offers(t, now, limit=limit, blocked=blocked)
        external = [run for run in whole if case["runs"][number(run)]["external"] and run.state == "PENDING"]
        read = sorted(external, key=lambda run: (-rank(run), run.scope, run.scope_id, run.scheduled_for, run.id))
        assert offers == sorted(read[:limit], key=lambda run: (-rank(run), run.scheduled_for, run.id))

        loads = await runs_assign.executor_loads(t)
        both = await runs_assign.loads_and_due(
            t, now, limit=limit, beside=case["beside"], known=runs_assign.KnownLoads()
        )
        assert sorted(both.loads, key=lambda e: e.worker_id) == sorted(loads, key=lambda e: e.worker_id)
        free = sum(max(0, e.slots - e.held) for e in loads if e.state == "on" and not e.drained)
        most = min(free, limit) + case["beside"] if free else 0
        _, alone, _ = await runs_assign.due_runs(t, now, limit=most, one_scope=True)
        everything, *_ = await runs_assign.due_runs(t, now, limit=100)
        assert both.several is not alone
        looked_at = limit + case["beside"]
        assert both.due == (first(everything, pending=most, ahead=looked_at, urgent=most) if alone else [])


@pytest.fixture
async def two_executors(world: Any, make: Any) -> Any:
    await executor(world, 1, labels={"zone": "a", "text": 'a "b" \\ ü\n\u2028'})
    await executor(world, 2)
    await world.apply(*(make.job(job) for job in JOBS))
    return world


async def queue(t: Tx, case: dict[str, Any], now: datetime) -> dict[str, int]:
    """Makes the runs and changes the executors as `case` says; the ids of the jobs."""
    for worker, (slots, state, drained) in zip(["e1", "e2"], case["executors"], strict=True):
        await t.execute(
            "UPDATE scheduler.executors SET slots = %(s)s, state = %(n)s, off_at = CASE %(n)s WHEN 'off' THEN now() END WHERE instance = %(i)s",
            {"s": slots, "n": state, "i": worker},
        )
        if drained:
            await t.execute(
                "INSERT INTO scheduler.executor_drains (instance, actor) VALUES (%(i)s, 'ada')", {"i": worker}
            )
    await t.execute(QUEUE, {"now": now, "runs": json.dumps([{"n": n, **run} for n, run in enumerate(case["runs"])])})
    rows = await t.fetch_all("SELECT name, id FROM scheduler.job_definitions")
    return {row["name"]: row["id"] for row in rows}


def is_due(run: dict[str, Any]) -> bool:
    return run["state"] in ("PENDING", "ahead") and run["seconds"] <= 0 and (run["again"] or 0) <= 0


def rank_and_scope(run: dict[str, Any]) -> tuple[int, str]:
    return run["priority"] * 2 - run["catch_up"], run["scope_id"]


def number(run: DueRun) -> int:
    return int(json.loads(run.payload)["n"])


def rank(run: DueRun) -> int:
    return run.priority * 2 - run.catch_up


def by_scope(runs: list[DueRun]) -> dict[tuple[int, str], list[DueRun]]:
    """The PENDING ones of each rank and scope, in the order of a read."""
    scopes: dict[tuple[int, str], list[DueRun]] = {}
    for run in runs:
        if run.state == "PENDING":
            scopes.setdefault((rank(run), run.scope_id), []).append(run)
    return scopes


def first(whole: list[DueRun], *, pending: int, ahead: int, urgent: int | None = None) -> list[DueRun]:
    """What a short read has of `whole`, whose PENDING runs have one rank and scope; it leaves these two out. `urgent`: how many of those ahead."""
    named = sorted((run for run in whole if run.state == "ASSIGNED"), key=lambda run: (run.scheduled_for, run.id))
    # The sort is stable.
    named = sorted(named[:ahead], key=rank, reverse=True)[:urgent]
    kept = {run.id for run in [*[run for run in whole if run.state == "PENDING"][:pending], *named]}
    return [replace(run, priority=0, catch_up=False, scope="system", scope_id="") for run in whole if run.id in kept]


async def test_a_large_backlog_is_not_read_for_few_slots(world: Any, make: Any) -> None:
    await backlog(world, make)
    scans = await scans_of_a_turn(world)
    assert len(scans) >= 3 and max(scan["Actual Rows"] for scan in scans) <= 3, scans


async def test_a_large_backlog_is_not_planned_for_at_each_turn(world: Any, make: Any) -> None:
    """PostgreSQL keeps a plan for any values when it expects that plan to cost no more than those for the values of five executions."""
    await backlog(world, make, runs=100_000)
    async with autocommit(world.pool) as t:
        for _ in range(12):
            known = runs_assign.KnownLoads()
            await runs_assign.loads_and_due(t, world.now(), limit=BATCH, beside=SPARE, known=known)
        [plans] = await t.fetch_all(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE %(start)s",
            {"start": "%string_agg(to_json(l)%"},
        )
    assert plans["generic_plans"] > 0 and plans["custom_plans"] <= 5, plans


async def test_more_than_one_statement_looks_at_is_read_by_two(
    world: Any, make: Any, reads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_assign, "MOST_LOOKED_AT", BATCH)
    await executor(world, slots=2)
    await world.apply(make.job())
    runs = await world.start(count=5)
    await world.turn("assign")
    await world.report(world.key(runs[0]), make.outcome())
    await world.turn("assign")
    assert await placed(world) == [runs[1], runs[2]]
    assert reads["loads_and_due"] == 0


async def test_what_is_known_of_executors_is_what_they_hold_now(two_executors: Any) -> None:
    world, known = two_executors, runs_assign.KnownLoads()
    async with autocommit(world.administrator) as t:
        for change in ("load = 0.5", "slots = 7", "state = 'draining'", "labels = '{}'"):
            await t.execute(f"UPDATE scheduler.executors SET {change} WHERE instance = 'e1'")
            read = await runs_assign.loads_and_due(t, world.now(), limit=1, beside=0, known=known)
            assert sorted(read.loads, key=lambda e: e.worker_id) == sorted(
                await runs_assign.executor_loads(t), key=lambda e: e.worker_id
            )


async def test_runs_that_were_placed_ahead_are_not_read_to_count_what_is_held(world: Any, make: Any) -> None:
    await backlog(world, make, state="ASSIGNED")
    held = [scan for scan in await scans_of_a_turn(world) if scan.get("Index Name") == "runs_live_held"]
    assert held and all(scan["Actual Rows"] == 0 and not scan.get("Rows Removed by Filter") for scan in held), held


async def backlog(world: Any, make: Any, *, runs: int = 5000, **of: Any) -> None:
    """So many runs, `of` so and then of the one executor, which has two slots."""
    await executor(world, slots=2)
    await world.apply(make.job())
    [run] = await world.start()
    async with tx(world.administrator) as t:
        [incarnation] = [one.incarnation for one in await runs_assign.executor_loads(t)]
        fields = {**of, "assigned_incarnation": incarnation if of else None}
        await t._run(
            "INSERT INTO scheduler.runs_live SELECT n.* FROM scheduler.runs_live r CROSS JOIN generate_series(1, %(runs)s::integer) i"
            " CROSS JOIN LATERAL jsonb_populate_record(r, %(fields)s::jsonb || jsonb_build_object('id', r.id + i)) n WHERE r.id = %(id)s",
            {"id": run, "fields": json.dumps(fields), "runs": runs},
        )
        await t._run("ANALYZE scheduler.runs_live", {})


async def scans_of_a_turn(world: Any) -> list[dict[str, Any]]:
    """How runs_live is scanned by a turn while runs wait for slots."""
    parameters = {
        **runs_assign.KnownLoads().asked(world.now()),
        "now": world.now(),
        "due_from": "-infinity",
        "beside": 1,
        "limit": 501,
        "queues": "{}",
        "blocked": "{}",
        "blocked_versions": "{}",
    }
    async with autocommit(world.pool) as t:
        statement = f"EXPLAIN (ANALYZE, FORMAT JSON) {runs_assign._sql.loads_and_due}"
        [row] = await t.fetch_all(statement, parameters, prepare=False)
    return [node for node in nodes_of(row["QUERY PLAN"][0]["Plan"]) if node.get("Relation Name") == "runs_live"]


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for part in node.get("Plans", []) for inner in nodes_of(part))]
