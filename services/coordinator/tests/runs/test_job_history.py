"""What a job was, and how its runs ended day by day."""

import json
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page
from toban_testing.clock import today


async def versions(world: Any, cursor: str = "", limit: int = 0, name: str = "hello") -> pb.ListJobVersionsResponse:
    request = pb.ListJobVersionsRequest(name=name, page=Page(cursor=cursor, limit=limit))
    return await world.reader.ListJobVersions(request, None)


async def days(world: Any, name: str = "hello", count: int = 0) -> list[tuple[str, int, int, int]]:
    found = await world.reader.GetJobDays(pb.GetJobDaysRequest(name=name, days=count), None)
    return [(one.day, one.succeeded, one.failed, one.other) for one in found.days]


async def test_versions_newest_first_and_page_by_page(world: Any, make: Any) -> None:
    for priority in (1, 2, 3):
        await world.apply(make.job(priority=priority))
    await world.apply(make.job("other"))
    first = await versions(world, limit=2)
    assert [one.version for one in first.versions] == [3, 2] and first.next_cursor
    assert '"priority": 3' in first.versions[0].spec_json and first.versions[0].HasField("created_at")
    rest = await versions(world, first.next_cursor, limit=2)
    assert [one.version for one in rest.versions] == [1] and not rest.next_cursor
    assert (await versions(world, "1")).versions == [], "a page beyond the first version is empty"
    with pytest.raises(TobanError) as caught:
        await versions(world, name="hallo")
    assert caught.value.code is ErrorCode.JOB_NOT_FOUND
    for cursor in ("x", "-1", "9" * 30, "٣"):
        with pytest.raises(TobanError) as caught:
            await versions(world, cursor)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


async def test_the_ends_of_runs_are_counted_by_day(world: Any, make: Any) -> None:
    await world.executor()
    await world.apply(make.job(), make.job("other"))
    assert await days(world) == []
    runs = await world.start(count=4)
    await world.start("other")
    await world.turn("assign")
    await world.cancel(runs[3])
    for run, kind in zip(runs, ("SUCCEEDED", "SUCCEEDED", "FAILED", "CANCELED"), strict=True):
        await world.report(world.key(run), make.outcome(kind))
    rows = await world.sql(
        "SELECT to_char(finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day FROM scheduler.runs_history"
    )
    found = await days(world)
    # The days of the ends are read, so that midnight may pass during the test.
    assert {day for day, *_ in found} == {row["day"] for row in rows}
    assert [sum(part) for part in zip(*(counts for _, *counts in found), strict=True)] == [2, 1, 1]


async def test_runs_of_an_earlier_day_are_counted_there_and_at_most_a_hundred(world: Any, make: Any) -> None:
    await world.apply(make.job())
    noon = datetime.combine(today(), time(), UTC) - timedelta(hours=12)
    await world.sql("SELECT scheduler.ensure_partitions(%(day)s::date, %(day)s::date)", day=noon.astimezone(UTC).date())
    runs = await world.start(count=1)
    await world.executor()
    await world.turn("assign")
    await world.report(world.key(runs[0]), make.outcome("FAILED"))
    names = [
        one["name"]
        for one in await world.sql(
            "SELECT attname AS name FROM pg_attribute WHERE attrelid = 'scheduler.runs_history'::regclass AND attnum > 0 AND NOT attisdropped "
            "AND attname NOT IN ('id', 'finished_at') ORDER BY attnum"
        )
    ]
    columns = ", ".join(names)
    await world.sql(
        f"INSERT INTO scheduler.runs_history (id, finished_at, {columns}) SELECT 1000 + g, %(at)s::timestamptz, {columns} "
        "FROM scheduler.runs_history CROSS JOIN generate_series(1, 103) AS g",
        at=noon,
    )
    counted = {day: failed for day, _, failed, _ in await days(world, count=3)}
    assert counted[f"{noon:%Y-%m-%d}"] == 100
    assert sum(counted.values()) == 101
    assert sum(failed for _, _, failed, _ in await days(world, count=1)) <= 1, "days before the first one are left out"


@pytest.mark.parametrize("count", [-1, 367])
async def test_a_wrong_number_of_days_is_refused(world: Any, make: Any, count: int) -> None:
    await world.apply(make.job())
    with pytest.raises(TobanError) as caught:
        await days(world, count=count)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(TobanError) as caught:
        await days(world, "hallo")
    assert caught.value.code is ErrorCode.JOB_NOT_FOUND


async def test_versions_show_no_value_that_they_or_the_current_one_hide(world: Any, make: Any) -> None:
    await world.apply(make.job(env={"API_KEY": "first", "PLAIN": "p"}))
    await world.apply(make.job(env={"API_KEY": "second"}, logs={"redact": ["API_KEY"]}))
    await world.apply(make.job(env={"OTHER": "third"}, logs={"redact": ["OTHER"]}))
    await world.apply(make.job(env={"API_KEY": "fourth"}, logs={"redact": ["API_KEY"]}))
    shown = [json.loads(one.spec_json)["env"] for one in (await versions(world)).versions]
    assert shown == [{"API_KEY": "***"}, {"OTHER": "***"}, {"API_KEY": "***"}, {"API_KEY": "***", "PLAIN": "p"}]
