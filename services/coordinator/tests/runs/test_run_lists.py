"""Lists of runs by every filter, alone and together, against a comparison of each row; and by which index."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

import pytest

from toban_coordinator.decide.runs.run_lists import Driver
from toban_coordinator.server.job_reader import JobReader
from toban_coordinator.store.runs import run_lists
from toban_coordinator.store.runs.run_lists import RunFilter
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page
from toban_store.tx import autocommit, tx

RUNS = 240
DAY = datetime(2026, 3, 5, tzinfo=UTC)
TEAMS = {"a": "ops", "b": "ops", "c": "web"}

INSERT = """
INSERT INTO scheduler.{table} (id, definition_id, definition_version, job_name, schedule_id, schedule_name, origin, scheduled_for, state,
                       scope, scope_id, assigned_worker_id, assigned_incarnation, token, created_at, started_at, finished_at)
VALUES (%(id)s, 1, 1, %(job)s, %(schedule_id)s, %(schedule)s, %(origin)s, %(created)s, %(state)s::text::scheduler.run_state, %(scope)s, %(scope_id)s,
        %(worker)s, '00000000-0000-4000-8000-000000000001', %(id)s, %(created)s, %(created)s, %(finished)s)
"""


def _runs() -> list[dict[str, Any]]:
    draw = random.Random(7)
    runs = []
    for number in range(1, RUNS + 1):
        created = DAY + timedelta(seconds=number * 60)
        state = draw.choice(["SUCCEEDED"] * 5 + ["FAILED", "TIMED_OUT", "CANCELED", "RUNNING", "ORPHANED"])
        schedule = draw.choice(["", "often", "rare"])
        account = draw.random() < 0.3
        runs.append(
            {
                "id": number,
                "job": draw.choice("abc"),
                "schedule": schedule,
                "schedule_id": {"often": 901, "rare": 902}.get(schedule),
                "origin": "slot" if schedule else draw.choice(["demand", "event", "rerun"]),
                "state": state,
                "scope": "account" if account else "system",
                "scope_id": draw.choice("12") if account else "",
                "worker": draw.choice([1, 2, 3]),
                "created": created,
                "finished": None
                if state in ("RUNNING", "ORPHANED")
                else created + timedelta(seconds=draw.choice([5, 5, 5, 7200])),
            }
        )
    return runs


FILTERS: dict[str, tuple[dict[str, Any], Any]] = {
    "job": ({"job": "a"}, lambda run: run["job"] == "a"),
    "bad": ({"states": ["FAILED", "TIMED_OUT"]}, lambda run: run["state"] in ("FAILED", "TIMED_OUT")),
    "good": ({"states": ["SUCCEEDED"]}, lambda run: run["state"] == "SUCCEEDED"),
    "mixed": ({"states": ["RUNNING", "CANCELED"]}, lambda run: run["state"] in ("RUNNING", "CANCELED")),
    "schedule": ({"schedule": "often"}, lambda run: run["schedule"] == "often"),
    "worker": ({"executor_worker_id": 2}, lambda run: run["worker"] == 2),
    "executor": ({"executor": "node-1"}, lambda run: run["worker"] in (1, 3)),
    "origin": ({"origin": "rerun"}, lambda run: run["origin"] == "rerun"),
    "scope": ({"scope": "account", "scope_id": "2"}, lambda run: run["scope_id"] == "2"),
    "any id": ({"scope": "account"}, lambda run: run["scope"] == "account"),
    "label": ({"labels": {"team": "ops"}}, lambda run: TEAMS[run["job"]] == "ops"),
    "span": (
        {"active_from": DAY + timedelta(hours=1), "active_until": DAY + timedelta(hours=2)},
        lambda run: (
            run["created"] < DAY + timedelta(hours=2)
            and (run["finished"] is None or run["finished"] >= DAY + timedelta(hours=1))
        ),
    ),
}
# Two values of one part cannot be asked for together.
ALIKE = [{"bad", "good", "mixed"}, {"worker", "executor"}, {"scope", "any id"}]
PAIRS = [pair for pair in combinations(FILTERS, 2) if not any(set(pair) <= same for same in ALIKE)]


@pytest.fixture
async def runs(world: Any, make: Any) -> list[dict[str, Any]]:
    for job, team in TEAMS.items():
        await world.apply(_labelled(make, job, team))
    await world.sql(
        "INSERT INTO scheduler.schedules_deleted (id, name, spec, settled_until) VALUES (901, 'often', '{}', now()), (902, 'rare', '{}', now())"
    )
    for worker, node in ((1, "node-1"), (2, "node-2"), (3, "node-1")):
        await world.sql(
            "INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port,"
            " key_hash, lease_ms, slots)"
            " VALUES (gen_random_uuid(), %(worker)s, 'i', %(node)s, 'b', 1, 'h', 1, '', 10000, 4)",
            worker=worker,
            node=node,
        )
    made = _runs()
    await world.sql("SELECT scheduler.ensure_partitions(%(day)s::date, %(day)s::date)", day=DAY)
    for run in made:
        await world.sql(INSERT.format(table="runs_history" if run["finished"] else "runs_live"), **run)
    return made


async def _listed(reader: JobReader, parts: dict[str, Any], *, limit: int = 37) -> list[int]:
    found: list[int] = []
    cursor = ""
    while True:
        page = await reader.ListRuns(pb.ListRunsRequest(page=Page(limit=limit, cursor=cursor), **parts), None)
        found += [run.id for run in page.runs]
        cursor = page.next_cursor
        if not cursor:
            return found


async def test_every_filter_and_pair_of_filters_finds_what_a_comparison_of_each_run_finds(
    world: Any, runs: list[dict[str, Any]]
) -> None:
    for names in [(), *[(name,) for name in FILTERS], *PAIRS]:
        parts = {key: value for name in names for key, value in FILTERS[name][0].items()}
        wanted = [run["id"] for run in runs if all(FILTERS[name][1](run) for name in names)]
        assert await _listed(world.reader, parts) == sorted(wanted, reverse=True), names
        assert wanted or len(names) == 2, names


async def test_what_cannot_match_is_empty_or_refused(world: Any, runs: list[dict[str, Any]]) -> None:
    assert await _listed(world.reader, {"labels": {"team": "none"}}) == []
    assert await _listed(world.reader, {"job": "c", "labels": {"team": "ops"}}) == []
    for parts, code, text in (
        ({"executor": "node-9"}, ErrorCode.NOT_FOUND, "toban executor list --all"),
        ({"executor": "node-1", "executor_worker_id": 1}, ErrorCode.INVALID_ARGUMENT, "not both"),
        ({"origin": "cron"}, ErrorCode.INVALID_ARGUMENT, "slot, demand, event, rerun"),
        ({"scope": "tenant"}, ErrorCode.INVALID_ARGUMENT, "system, account, user"),
        ({"scope_id": "1"}, ErrorCode.INVALID_ARGUMENT, "needs a scope"),
        ({"active_from": {"seconds": 5}, "active_until": {"seconds": 4}}, ErrorCode.INVALID_ARGUMENT, "later than"),
    ):
        with pytest.raises(TobanError, match=text) as caught:
            await _listed(world.reader, parts)
        assert caught.value.code is code


async def test_ids_of_a_time_are_found_by_halves(world: Any, runs: list[dict[str, Any]]) -> None:
    async with autocommit(world.pool) as t:
        for number in (1, 2, 100, RUNS):
            assert await run_lists.first_id_since(t, DAY + timedelta(seconds=number * 60)) == number
        assert await run_lists.first_id_since(t, DAY + timedelta(days=3)) == RUNS + 1


async def test_each_index_is_used(world: Any, runs: list[dict[str, Any]]) -> None:
    """Without sequential scans and sorts of whole partitions, what is left is the index that is meant."""
    indexes = {
        Driver.STATE: ("_state_id_finished_at", {"states": ("FAILED",)}),
        Driver.JOB: ("_job_name_id_", {"jobs": ("a",)}),
        Driver.JOB_AND_STATE: ("_job_name_state_id_", {"jobs": ("a",), "states": ("FAILED",)}),
        Driver.EXECUTOR: ("_assigned_worker_id_id_idx", {"workers": (1,)}),
        Driver.ORIGIN: ("_origin_id_idx", {"origin": "rerun"}),
        Driver.SCOPE: ("_scope_scope_id_id_idx", {"scope": "account", "scope_id": "1"}),
        Driver.SCHEDULE: ("_schedule_id_id_idx", {"schedule": "often"}),
        Driver.ID: ("_pkey", {}),
    }
    async with tx(world.pool) as t:
        await t.execute("SET LOCAL enable_seqscan = off")
        await t.execute("SET LOCAL enable_bitmapscan = off")
        await t.execute("SET LOCAL enable_sort = off")
        for driver, (index, parts) in indexes.items():
            wanted = RunFilter(below=RUNS + 1, limit=10, **parts)  # type: ignore[arg-type]
            assert wanted.driver is driver
            rows = await t.fetch_all(
                f"EXPLAIN {getattr(run_lists._sql, driver)}", run_lists.parameters_of(wanted, driver), prepare=False
            )
            plan = "\n".join(row["QUERY PLAN"] for row in rows)
            assert index in plan, (driver, plan)


SCANS = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'job_definitions'"


async def test_jobs_are_found_by_their_labels_by_an_index(world: Any, make: Any) -> None:
    await world.apply(*(_labelled(make, name, team) for name, team in TEAMS.items()))
    async with tx(world.pool) as t:
        await t.execute("SET LOCAL enable_seqscan = off")
        # What a session has counted before and not yet published is in there, too.
        before = await t.fetch_all(SCANS)
        found = await run_lists.jobs_labelled(t, {"team": "ops"}, limit=10)
        after = await t.fetch_all(SCANS)
    assert set(found) == {name for name, team in TEAMS.items() if team == "ops"}
    assert before == after
    assert after


def _labelled(make: Any, name: str, team: str) -> dict[str, Any]:
    definition: dict[str, Any] = make.job(name)
    definition["metadata"]["labels"] = {"team": team}
    return definition


async def test_a_brief_list_is_the_same_without_payload_and_result(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job())
    runs = await world.start(count=2, payload_json='{"name": "x"}')
    await world.turn("assign", "dispatch")
    await world.report(world.key(runs[0]), make.outcome(result_json='{"sum": 1}'))
    whole = await world.reader.ListRuns(pb.ListRunsRequest(), None)
    assert [bool(run.payload_json) for run in whole.runs] == [True, True] and any(run.result_json for run in whole.runs)
    for run in whole.runs:
        run.payload_json = run.result_json = ""
    assert await world.reader.ListRuns(pb.ListRunsRequest(brief=True), None) == whole


async def test_a_key_finds_the_run_of_its_job(world: Any, make: Any) -> None:
    await world.apply(make.job())
    await world.apply(make.job("other"))
    [first] = await world.start(idempotency_key="order-7")
    async with autocommit(world.pool) as t:
        later = await t.fetch_one("SELECT now() + interval '1 hour' AS at", {})
    [ahead] = await world.start("other", idempotency_key="order-7", scheduled_for=later["at"])
    await world.start(idempotency_key="order-8")

    async def found(job: str, key: str, **more: Any) -> list[int]:
        request = pb.ListRunsRequest(job=job, idempotency_key=key, **more)
        return [run.id for run in (await world.reader.ListRuns(request, None)).runs]

    assert await found("hello", "order-7") == [first]
    assert await found("hello", "order-7", run_ids=[first]) == [first]
    assert await found("hello", "order-7", run_ids=[ahead]) == []
    assert await found("other", "order-7") == []
    assert await found("other", "order-7", include_ahead=True) == [ahead]
    assert await found("hello", "order-9") == []
    for job in ("", "hel*"):
        with pytest.raises(TobanError, match="idempotency_key needs the name of its job"):
            await found(job, "order-7")
