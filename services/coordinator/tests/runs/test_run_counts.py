"""How many runs ran in a span of time, against a look at each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.app.runs import run_counts
from toban_coordinator.app.runs.run_counts import CountRuns
from toban_coordinator.app.runs.run_queries import RunQuery
from toban_coordinator.decide.runs.run_counts import Group, Span, groups
from toban_coordinator.store.runs import run_counts as store
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_to_pb

DAY = datetime(2026, 3, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
INSERT = """
INSERT INTO scheduler.{table} (id, definition_id, definition_version, job_name, origin, scheduled_for, state, scope,
                       scope_id, assigned_worker_id, assigned_incarnation, token, created_at, started_at, finished_at)
SELECT %(id)s, %(definition)s, 1, %(job)s, 'demand', %(created)s, %(state)s::text::scheduler.run_state, %(scope)s, %(scope_id)s,
       e.worker_id, e.incarnation, %(id)s, %(created)s, %(started)s, %(finished)s
  FROM (SELECT 1) one LEFT JOIN scheduler.executors e ON e.worker_id = %(worker)s::bigint
"""


def run(number: int, start: float | None, end: float | None, **given: Any) -> dict[str, Any]:
    """A run from and to so many minutes after DAY."""
    run = {
        "id": number,
        "job": "a",
        "definition": 1,
        "scope": "system",
        "scope_id": "",
        "worker": 1 + number % 2,
        "state": "RUNNING" if end is None else "SUCCEEDED",
        "created": DAY + timedelta(minutes=start or 0),
        "started": None if start is None else DAY + timedelta(minutes=start),
        "finished": None if end is None else DAY + timedelta(minutes=end),
    }
    return run | given


RUNS = [
    run(1, 61, 179),
    run(2, 120, 180, state="FAILED", job="b", definition=2),
    run(3, 125, None),
    run(4, 60, 60),
    run(5, 10, 60),
    run(6, None, 100, state="CANCELED"),
    run(7, 150, 151, job="b", scope="account", scope_id="17"),
    run(8, 130, 131, worker=None),
    *(run(number, number, number + 2.5, job=f"job-{number % 40}") for number in range(60, 240)),
]


@pytest.fixture
async def stored(world: Any) -> None:
    for worker in (1, 2):
        await world.sql(
            "INSERT INTO scheduler.executors (incarnation, worker_id, instance, node_id, boot_id, pid, grpc_host, grpc_port,"
            " key_hash, lease_ms, slots)"
            " VALUES (gen_random_uuid(), %(worker)s, 'i', %(node)s, 'b', 1, 'h', 1, '', 10000, 4)",
            worker=worker,
            node=f"node-{worker}",
        )
    await world.sql("SELECT scheduler.ensure_partitions(%(day)s::date, %(day)s::date)", day=DAY)
    for one in RUNS:
        table = "runs_history" if one["finished"] else "runs_live"
        await world.sql(INSERT.format(table=table), **one)


def expected(by: str, since: datetime, until: datetime, seconds: int) -> dict[str, dict[datetime, Counter[str]]]:
    """By a look at each run in each interval."""
    found: dict[str, dict[datetime, Counter[str]]] = {}
    for one in RUNS:
        name = one["job"] if by == "job" else one["worker"] and f"node-{one['worker']}"
        if not name or one["started"] is None:
            continue
        at = datetime.fromtimestamp(since.timestamp() // seconds * seconds, UTC)
        while at < until:
            begin, end = max(at, since), min(at + timedelta(seconds=seconds), until)
            started, finished = one["started"], one["finished"] or until
            if started < end and (finished > begin or started >= begin):
                found.setdefault(name, {}).setdefault(at, Counter())[one["state"]] += 1
            at += timedelta(seconds=seconds)
    return found


def request(
    since: datetime, until: datetime, *, by: str = "executor", seconds: int = 0, **filters: Any
) -> pb.CountRunsRequest:
    wanted = {"active_from": timestamp_to_pb(since), "active_until": timestamp_to_pb(until), **filters}
    return pb.CountRunsRequest(filter=pb.ListRunsRequest(**wanted), by=by, interval_seconds=seconds)


def intervals(group: Any) -> dict[datetime, Mapping[str, int]]:
    return {one.at.ToDatetime(UTC): dict(one.runs) for one in group.intervals}


@pytest.mark.parametrize("seconds", [60, 300, 3600, 1234])
@pytest.mark.parametrize(("since", "until"), [(60, 180), (61.5, 142.25), (120, 121), (0, 480)])
async def test_a_run_counts_in_each_interval_in_which_it_ran(
    world: Any, stored: None, since: float, until: float, seconds: int
) -> None:
    begin, end = DAY + timedelta(minutes=since), DAY + timedelta(minutes=until)
    found = await world.reader.CountRuns(request(begin, end, seconds=seconds), None)
    assert {one.name: intervals(one) for one in found.groups} == expected("executor", begin, end, seconds)
    assert (found.since.ToDatetime(UTC), found.until.ToDatetime(UTC)) == (begin, end)


async def test_groups_beyond_the_most_are_one_and_each_run_counts_once(world: Any, stored: None) -> None:
    begin, end = DAY + HOUR, DAY + 4 * HOUR
    found = await world.reader.CountRuns(request(begin, end, by="job", seconds=300), None)
    names = [one.name for one in found.groups]
    assert len(names) == store.MOST_GROUPS + 1 and names[-1] == "" and names[0] != ""
    assert found.groups[-1].others == 42 - store.MOST_GROUPS and not any(one.others for one in found.groups[:-1])
    totals = [sum(one.runs.values()) for one in found.groups[:-1]]
    assert totals == sorted(totals, reverse=True)
    ran = [one for one in RUNS if one["started"] and one["id"] != 5]
    assert sum(sum(one.runs.values()) for one in found.groups) == len(ran)
    whole = await world.reader.CountRuns(request(begin, end, by="job", job="b"), None)
    [group] = whole.groups
    assert (group.name, dict(group.runs), intervals(group)) == (
        "b",
        {"SUCCEEDED": 1, "FAILED": 1},
        {begin: dict(group.runs)},
    )


async def test_filters_hold(world: Any, stored: None) -> None:
    async def totals(**filters: Any) -> dict[str, int]:
        found = await world.reader.CountRuns(request(DAY, DAY + 4 * HOUR, by="job", **filters), None)
        return {one.name: sum(one.runs.values()) for one in found.groups}

    assert await totals(states=["FAILED"]) == {"b": 1}
    assert await totals(states=["RUNNING"]) == {"a": 1}
    assert await totals(scope="account", scope_id="17") == {"b": 1}
    assert await totals(executor="node-1", job="b") == {"b": 1}
    assert await totals(run_ids=[1, 7, 99999]) == {"a": 1, "b": 1}
    assert await totals(labels={"team": "none"}) == {}


async def test_of_too_many_runs_the_later_part_is_counted(
    world: Any, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_counts, "MOST_RUNS", 40)
    begin, end = DAY + HOUR, DAY + 4 * HOUR
    found = await world.reader.CountRuns(request(begin, end, seconds=300), None)
    since = found.since.ToDatetime(UTC)
    assert begin < since < end and since.timestamp() % 300 == 0
    assert {one.name: intervals(one) for one in found.groups} == expected("executor", since, end, 300)
    monkeypatch.setattr(run_counts, "MOST_RUNS", 1)
    nothing = await world.reader.CountRuns(request(begin, end, seconds=300), None)
    assert not nothing.groups and nothing.since == nothing.until


async def test_of_all_times_only_those_with_runs_are_halved(
    world: Any, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_counts, "MOST_RUNS", 40)
    asked: list[datetime] = []
    counts = store.counts

    async def noted(t: Any, what: Any, seen: Any) -> Any:
        asked.append(what.span.since)
        return await counts(t, what, seen)

    monkeypatch.setattr(store, "counts", noted)
    found = await world.reader.CountRuns(request(datetime(1900, 1, 1, tzinfo=UTC), DAY + 4 * HOUR), None)
    assert found.groups and len(asked) <= 5 and asked[1] > DAY


async def test_what_a_person_may_not_see_is_not_counted(
    world: Any, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def rights(runs: Sequence[int]) -> dict[int, bool]:
        asked.extend(runs)
        return dict.fromkeys([one for one in runs if one == 2], False)

    counts = CountRuns(pool=world.pool)

    async def names() -> dict[str, dict[str, int]]:
        query = RunQuery(active_from=DAY, active_until=DAY + 4 * HOUR)
        found = await counts.get(query, by="job", interval_seconds=0, rights=rights)
        return {one.name: dict(one.runs) for one in found.groups}

    assert await names() == {"b": {"FAILED": 1}}
    assert {1, 2, 7} <= set(asked) and len(asked) == 3, "one run of each definition and scope"
    monkeypatch.setattr(run_counts, "MOST_RESTRICTED", 1)
    assert await names() == {}, "too many to look up each"


async def test_what_is_refused(world: Any) -> None:
    for wanted, text in (
        (request(DAY, DAY + HOUR, by="state"), "job or executor"),
        (request(DAY, DAY + HOUR, seconds=-1), "use 0"),
        (request(DAY, DAY + HOUR, seconds=1 << 62), "at most 31622400"),
        (request(DAY, DAY + HOUR, seconds=1), "use 8 or more"),
        (request(DAY + HOUR, DAY), "later than"),
        (request(DAY, DAY + HOUR, page={"cursor": "5"}), "no pages"),
    ):
        with pytest.raises(TobanError, match=text) as caught:
            await world.reader.CountRuns(wanted, None)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(TobanError, match="toban executor list"):
        await world.reader.CountRuns(request(DAY, DAY + HOUR, executor="node-9"), None)


async def test_without_times_the_last_hour_is_counted(world: Any, stored: None) -> None:
    found = await world.reader.CountRuns(pb.CountRunsRequest(), None)
    assert found.until.ToDatetime() - found.since.ToDatetime() == HOUR
    [running] = found.groups
    assert (running.name, dict(running.runs)) == ("a", {"RUNNING": 1}), "by job"


def test_a_span_in_the_future_is_empty_and_halves_end() -> None:
    now = DAY
    assert Span.of(now + HOUR, None, seconds=60, now=now) == Span(now, now, 60)
    span: Span | None = Span(DAY, DAY + HOUR, 300)
    halves = 0
    while span is not None:
        span, halves = span.later_half(), halves + 1
    assert halves <= 5
    assert groups([], Span(DAY, DAY + HOUR, 300)) == []
    row = {"name": "", "others": 3, "state": "FAILED", "first": 1, "last": 1, "runs": 2}
    other = {**row, "name": "z", "others": 0}
    assert [one.name for one in groups([row, other], Span(DAY, DAY + HOUR, 300))] == ["z", ""]
    assert isinstance(groups([row], Span(DAY, DAY + HOUR, 300))[0], Group)
