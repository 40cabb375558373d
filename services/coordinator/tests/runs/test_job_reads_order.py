"""In which order people see runs and coordinators while rows are made ahead or follow a moment later."""

from typing import Any

import pytest

from toban_coordinator.server.cluster_to_proto import member_to_pb
from toban_coordinator.server.job_reader import JobReader
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import Page


@pytest.fixture
def reader(world: Any) -> JobReader:
    return world.reader  # type: ignore[no-any-return]


async def test_runs_of_one_fire_are_numbered_in_the_order_of_their_slots(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule(interval_seconds=5), make.schedule(name="beside", interval_seconds=10))
    await world.sql("UPDATE scheduler.schedules SET next_run_at = next_run_at + interval '5 s'")
    await world.turn("fire")
    slots = [row["slot"] for row in await world.sql("SELECT slot FROM scheduler.runs_live ORDER BY id")]
    assert len(slots) > 4 and slots == sorted(slots)


async def test_a_page_of_runs_is_in_the_order_of_their_times(world: Any, make: Any, reader: JobReader) -> None:
    await world.apply(make.job())
    runs = await world.start(count=5)
    for run, seconds in zip(runs, (50, 10, 40, 20, 30), strict=True):
        await world.sql(
            "UPDATE scheduler.runs_live SET scheduled_for = now() - make_interval(secs => %(ago)s) WHERE id = %(id)s",
            ago=seconds,
            id=run,
        )
    by_time = [runs[1], runs[3], runs[4], runs[2], runs[0]]
    whole = await reader.ListRuns(pb.ListRunsRequest(), None)
    assert [run.id for run in whole.runs] == by_time
    seen, cursor = [], ""
    for _ in range(3):
        page = await reader.ListRuns(pb.ListRunsRequest(page=Page(limit=2, cursor=cursor)), None)
        due = [run.scheduled_for.ToNanoseconds() for run in page.runs]
        assert due == sorted(due, reverse=True)
        seen += [run.id for run in page.runs]
        cursor = page.next_cursor
    assert sorted(seen) == sorted(runs) and cursor == "", "each run once, whatever the order of their times"
    request = pb.ListRunsRequest(job="hello")
    request.active_from.FromSeconds(1)
    searched = await reader.ListRuns(request, None)
    assert [run.id for run in searched.runs] == sorted(runs, reverse=True), "a search goes on below a number"


@pytest.mark.parametrize(
    ("worker_id", "stored", "shown"),
    [(2, "subleader", "leader"), (1, "leader", "standby"), (1, "subleader", "subleader"), (2, "leader", "leader")],
)
def test_who_leads_is_told_once(worker_id: int, stored: str, shown: str) -> None:
    row: dict[str, Any] = {
        "worker_id": worker_id,
        "role": stored,
        "incarnation": "",
        "node_id": "n",
        "address": "h:1",
        "last_seen_at": None,
        "version": "",
        "status": "ok",
        "clock_skew_seconds": None,
        "certificate_not_after": None,
    }
    assert member_to_pb(row, leader_worker_id=2).role == shown


async def test_a_leader_that_resigned_is_not_shown_as_one(world: Any, reader: JobReader) -> None:
    await world.sql("UPDATE scheduler.leader SET worker_id = 7")
    await world.sql(
        "INSERT INTO scheduler.coordinators (incarnation, worker_id, node_id, address, pid, version, role)"
        " VALUES (gen_random_uuid(), 7, 'n', 'a', 1, '1', 'leader')"
    )

    async def roles() -> list[str]:
        return [member.role for member in (await reader.GetCluster(pb.GetClusterRequest(), None)).coordinators]

    assert await roles() == ["leader"]
    await world.sql("UPDATE scheduler.leader SET resigned_epoch = epoch")
    assert await roles() == ["standby"]
