"""LogArchive over real mTLS, and the coordinator's settings on their way to the archiver."""

from typing import Any

import psycopg
import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import Settings
from toban_log_archiver.loops import archive_watch
from toban_log_archiver.loops.archive import ArchiveLoop
from toban_log_archiver.loops.archive_watch import ArchiveWatch
from toban_log_archiver.server.archive import LogArchive
from toban_log_archiver.store import archive_lease, archive_reads
from toban_proto.v1 import logs_pb2 as pb

LINES = list(range(1, 60))


@pytest.fixture
async def filled(world: Any) -> Any:
    await world.store(1, 10, LINES, seal=LINES[-1])
    await world.store(2, 10, [1, 2])
    return world


def service(world: Any, **given: Any) -> LogArchive:
    parts = {"store": world.bucket, "archiver": world.archiver(target_bytes=300), "wake": lambda: None, **given}
    return LogArchive(pool=world.pool, settings=world.settings, **parts)


async def collected(answers: Any) -> list[Any]:
    return [one async for one in answers]


async def status(world: Any, **given: Any) -> pb.ArchiveStatusResponse:
    return await service(world, **given).Status(pb.ArchiveStatusRequest(), None)


async def test_status_before_and_after_a_pass(filled: Any) -> None:
    before = await status(filled)
    (day,) = before.days
    assert (day.log_day, day.due, day.tokens, day.open_chunks) == (filled.old.isoformat(), True, 2, day.chunks)
    assert (before.oldest_not_archived, before.retention_days) == (filled.old.isoformat(), 7)
    assert before.database_bytes > day.bytes > 0
    assert before.bookkeeping_bytes > 0
    assert before.bucket == f"s3://{filled.bucket_name}"
    assert not before.HasField("last_pass_at")
    did = await collected(service(filled).RunArchive(pb.RunArchiveRequest(), None))
    assert {one.action for one in did} == {"archived"}
    after = await status(filled)
    (day,) = after.days
    assert day.archived_chunks == day.chunks - 2 == sum(one.chunks for one in did)
    assert day.archived_objects == len(did)
    assert day.open_chunks == 2
    assert after.oldest_not_archived == filled.old.isoformat(), "an attempt of the day has not ended"
    assert after.HasField("last_pass_at")
    assert after.last_pass.startswith(f"{len(did)} objects")
    assert (after.last_error, after.holder) == ("", "")


async def test_a_pass_in_the_background_is_one_of_the_loop(filled: Any) -> None:
    woken: list[bool] = []
    asked = service(filled, wake=lambda: woken.append(True))
    assert await collected(asked.RunArchive(pb.RunArchiveRequest(background=True), None)) == []
    assert woken == [True] and not (await status(filled)).HasField("last_pass_at")


async def test_a_pass_while_another_one_is_under_way(filled: Any) -> None:
    assert await archive_lease.take(filled.pool, holder="host-b", lease_seconds=30) is not None
    assert (await status(filled)).holder == "host-b"
    with pytest.raises(TobanError, match="host-b") as caught:
        await collected(service(filled).RunArchive(pb.RunArchiveRequest(), None))
    assert caught.value.code is ErrorCode.CONFLICT


async def test_verify_finds_what_is_broken(filled: Any) -> None:
    did = await collected(service(filled).RunArchive(pb.RunArchiveRequest(), None))
    verified = await collected(service(filled).Verify(pb.VerifyArchiveRequest(log_day=filled.old.isoformat()), None))
    assert [(one.key, one.ok, one.problem) for one in verified] == [(one.key, True, "") for one in did]
    assert await collected(service(filled).Verify(pb.VerifyArchiveRequest(log_day="2020-01-01"), None)) == []
    rest = pb.VerifyArchiveRequest(log_day=filled.old.isoformat(), after=verified[0].number)
    assert [one.key for one in await collected(service(filled).Verify(rest, None))] == [one.key for one in did[1:]]
    first, second, *_ = did
    filled.remove(first.key)
    filled.remove(second.key)
    assert await filled.bucket.put_new(second.key, b"something else")
    await filled.execute(
        "UPDATE logs.manifests SET byte_offset = byte_offset + 1 WHERE object_id = (SELECT max(id) FROM logs.objects)"
    )
    problems = {
        one.key: one.problem for one in await collected(service(filled).Verify(pb.VerifyArchiveRequest(), None))
    }
    assert problems[first.key] == "the object is not there"
    assert problems[second.key].startswith("it has 14 bytes")
    assert "are not where the manifest says" in problems[did[-1].key]
    with pytest.raises(TobanError, match="write YYYY-MM-DD"):
        await collected(service(filled).Verify(pb.VerifyArchiveRequest(log_day="monday"), None))


async def test_without_an_object_store(filled: Any) -> None:
    bare = service(filled, store=None, archiver=None)
    assert (await status(filled, store=None, archiver=None)).bucket == ""
    for answers in (bare.RunArchive(pb.RunArchiveRequest(), None), bare.Verify(pb.VerifyArchiveRequest(), None)):
        with pytest.raises(TobanError, match="SCHEDULER_S3_BUCKET"):
            await collected(answers)


async def test_health_warns_of_a_failed_pass_and_of_the_budget(filled: Any, monkeypatch: Any) -> None:
    archiver = filled.archiver()
    watch = ArchiveWatch(pool=filled.pool, settings=filled.settings, archiver=archiver)
    await watch.run_once()
    assert watch.check().status == "ok"
    assert watch.check().value["backlog_days"] == 1
    archiver.set_problem("the object store does not answer")
    assert (watch.check().status, watch.check().value["problem"]) == ("warning", "the object store does not answer")
    archiver.set_problem("")
    filled.settings.known = Settings({"log_budget_db_gb": 1})
    async with archive_reads.long_query_tx(filled.pool) as t:
        monkeypatch.setattr(archive_watch, "GB", (await archive_reads.volume(t)).chunks)
    await watch.run_once()
    assert "of log_budget_db_gb" in watch.check().value["problem"]


async def test_nothing_is_archived_before_the_settings_are_known(filled: Any) -> None:
    filled.settings.received = False
    archiver = filled.archiver()
    loop = ArchiveLoop(archiver=archiver, settings=filled.settings)
    await loop.run_once()
    assert archiver.problem == "", "it has just begun"
    await loop.run_once()
    assert "SCHEDULER_COORDINATORS" in archiver.problem
    filled.settings.received = True
    await loop.run_once()
    assert archiver.problem == ""
    assert (await filled.sql("SELECT count(*) AS n FROM logs.objects"))[0]["n"] > 0


async def test_a_day_that_was_dropped_takes_late_chunks_again(archiver: Any, pg_url: str) -> None:
    """The stream that sends them remembers the day from before: it is told to come again, and nothing is refused for good."""
    today = archiver.today
    await archiver.store(1, 10, archiver.chunk(1, 10, [1]))
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE logs.chunks_{today:%Y%m%d}")
    with pytest.raises(TobanError) as caught:
        await archiver.store(1, 10, archiver.chunk(1, 10, [2]))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    await archiver.store(1, 10, archiver.chunk(1, 10, [2]), seal=2)
    assert await archiver.lines(1) == [(10, 2)]
