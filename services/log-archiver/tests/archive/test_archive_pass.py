"""A pass of the archive over real PostgreSQL and a real S3 server: what moves, and that every line stays readable once at any kill point."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.settings import Settings
from toban_log_archiver.app.archive_pass import Busy
from toban_log_archiver.decide import tlog
from toban_testing.waiting import until

RUNS = {run_id: list(range(1, 20 + run_id)) for run_id in range(1, 13)}
# Every step of a pass, in order: a crash right before any of them.
STEPS = (
    "taken", "read", "plan", "put", "stored", "read_back", "manifest", "commit", "committed", "drop", "drop_commit", "dropped",
)  # fmt: skip


WRITTEN = """
SELECT (SELECT jsonb_agg(to_jsonb(o) ORDER BY o.id) FROM logs.objects o) AS objects, (SELECT count(*) FROM logs.manifests) AS manifests,
       (SELECT count(*) FROM logs.chunks) AS chunks, (SELECT to_jsonb(l) FROM logs.archive_lease l) AS lease
"""


class Killed(BaseException):
    """Stands for a kill: nothing that is done in the way out of an error is done."""


def kill_at(step: str, *, number: int = 1) -> Callable[[str], None]:
    seen = 0

    def before_step(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == number:
            raise Killed(step)

    return before_step


async def fill(world: Any) -> None:
    for run_id, seqs in RUNS.items():
        await world.store(run_id, 10, seqs, seal=seqs[-1])


async def all_there(world: Any) -> None:
    """Every line of every run, exactly once and in order."""
    for run_id, seqs in RUNS.items():
        assert await world.read(run_id) == world.wanted(run_id, 10, seqs)


@pytest.mark.seed(116)
async def test_an_old_day_moves_and_reads_the_same(world: Any) -> None:
    await fill(world)
    await all_there(world)
    did = await world.work()
    archived = [one for one in did if one.action == "archived"]
    assert len(archived) > 1, "the day is larger than one object"
    assert sum(one.lines for one in archived) == sum(map(len, RUNS.values()))
    assert [one.log_day for one in did if one.action == "dropped"] == [world.old]
    assert not await world.has_day()
    assert (await world.sql("SELECT count(*) AS n FROM logs.chunks"))[0]["n"] == 0
    await all_there(world)
    assert await world.read(3, from_seq=5, streams=[1]) == world.wanted(3, 10, [6, 8, 10, 12, 14, 16, 18, 20, 22])
    assert await world.read(3, tail=3) == world.wanted(3, 10, RUNS[3])[-3:]
    assert await world.work() == []


@pytest.mark.seed(64)
async def test_what_is_younger_or_not_sealed_stays(world: Any) -> None:
    young = world.today - timedelta(days=7)
    await world.store(1, 10, [1, 2], day=young, seal=2)
    await world.store(2, 10, [1, 2])
    assert [one.action for one in await world.work()] == []
    assert await world.has_day(young)
    assert await world.has_day()
    world.settings.known = Settings({"log_retention_days_db": 6})
    assert {one.log_day for one in await world.work() if one.action == "dropped"} == {young}
    assert await world.has_day()
    assert await world.read(1) == world.wanted(1, 10, [1, 2])


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_before_any_step_loses_and_doubles_nothing(world: Any, step: str) -> None:
    await fill(world)
    with pytest.raises(Killed):
        await world.work(before_step=kill_at(step))
    await all_there(world)
    # The lease was not released: the next archiver waits until it has been silent for long enough.
    with pytest.raises(Busy):
        await world.work()
    await world.work(lease_seconds=0.0)
    await all_there(world)
    assert not await world.has_day()
    states = await world.sql("SELECT state, count(*) AS n FROM logs.objects GROUP BY state")
    assert [row["state"] for row in states] == ["verified"]
    covered = await world.sql("SELECT sum(line_count) AS n FROM logs.manifests")
    assert covered[0]["n"] == sum(map(len, RUNS.values()))


@pytest.mark.parametrize("step", ["look", "stored", "manifest", "commit"])
async def test_a_kill_while_an_earlier_kill_is_repaired(world: Any, step: str) -> None:
    await fill(world)
    with pytest.raises(Killed):
        await world.work(before_step=kill_at("read_back", number=2))
    with pytest.raises(Killed):
        await world.work(before_step=kill_at(step), lease_seconds=0.0)
    await all_there(world)
    await world.work(lease_seconds=0.0)
    await all_there(world)
    assert not await world.has_day()


async def test_what_was_put_is_completed_and_not_packed_again(world: Any) -> None:
    await fill(world)
    with pytest.raises(Killed):
        await world.work(before_step=kill_at("read_back"), target_bytes=1 << 20)
    (begun,) = await world.sql("SELECT key, state FROM logs.objects")
    assert begun["state"] == "stored"
    did = await world.work(lease_seconds=0.0, target_bytes=1 << 20)
    assert [(one.action, one.key) for one in did if one.action == "archived"] == [("archived", begun["key"])]


async def test_an_object_that_others_came_before_is_forgotten(world: Any) -> None:
    await world.store(1, 10, [1, 2, 3], seal=3)
    with pytest.raises(Killed):
        await world.work(before_step=kill_at("read_back"))
    # As after a restore: the row of another pass, for a part of the same chunks.
    await world.execute("UPDATE logs.objects SET state = 'planned', stored_at = NULL")
    await world.store(1, 10, [4], seal=None)
    await world.execute("UPDATE logs.archive_lease SET held = false")
    await world.work()
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3, 4])
    assert not await world.has_day()


@pytest.mark.parametrize("step", ["plan", "put", "stored", "read_back", "manifest", "drop"])
async def test_a_stale_archiver_writes_nothing(world: Any, step: str) -> None:
    """Another one takes over right before one of its steps: its next write is refused, and nothing of it is there."""
    await fill(world)
    before: list[Any] = []

    def take_over(name: str) -> None:
        if name == step and not before:
            with psycopg.connect(world.url, autocommit=True) as connection:
                connection.execute("UPDATE logs.archive_lease SET epoch = epoch + 1, holder = 'newer', held = true")
                before.append(connection.execute(WRITTEN).fetchone())

    with pytest.raises(FencedOut):
        await world.work(before_step=take_over, target_bytes=1 << 20)
    assert list((await world.sql(WRITTEN))[0].values()) == list(before[0])
    assert await world.has_day()
    with pytest.raises(Busy, match="newer"):
        await world.work()
    await all_there(world)
    await world.work(lease_seconds=0.0)
    await all_there(world)
    assert not await world.has_day()


async def test_no_other_archiver_works_meanwhile(world: Any) -> None:
    await fill(world)
    others: list[BaseException] = []

    async def other() -> None:
        with pytest.raises(Busy, match="first") as caught:
            await world.work(holder="second")
        others.append(caught.value)

    tasks: list[asyncio.Task[None]] = []

    class Slow:
        """Lets another archiver try while an object is on its way."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.bucket, name)

        async def put_new(self, key: str, body: bytes) -> bool:
            if not tasks:
                tasks.append(asyncio.create_task(other()))
            await tasks[0]
            return await world.bucket.put_new(key, body)

    await world.work(store=Slow(), holder="first")
    assert len(others) == 1
    assert others[0].code is ErrorCode.CONFLICT  # type: ignore[attr-defined]
    await all_there(world)


async def test_readers_see_every_line_once_while_it_moves(world: Any) -> None:
    await fill(world)
    done = asyncio.Event()
    rounds = 0

    async def read_on() -> None:
        nonlocal rounds
        while not done.is_set():
            for run_id in (1, 7, 12):
                assert await world.read(run_id) == world.wanted(run_id, 10, RUNS[run_id])
            rounds += 1

    readers = [asyncio.create_task(read_on()) for _ in range(2)]
    try:
        while await world.has_day():
            await world.work(target_bytes=600)
        before = rounds
        await until(lambda: rounds >= before + 3 or any(reader.done() for reader in readers))
    finally:
        done.set()
        await asyncio.gather(*readers)


async def test_late_lines_make_a_range_of_their_own(world: Any) -> None:
    await world.store(1, 10, [1, 2, 3, 4], seal=4)
    await world.work()
    assert not await world.has_day()
    await world.store(1, 10, [5, 6])
    # One that was archived comes again, and one that ends later than the first time.
    await world.store(1, 10, [1, 2, 3, 4])
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3, 4, 5, 6])
    did = await world.work()
    assert [one.lines for one in did if one.action == "archived"] == [2]
    assert not await world.has_day()
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3, 4, 5, 6])


async def test_a_chunk_that_comes_longer_later_is_read_once(world: Any) -> None:
    await world.store(1, 10, [1, 2, 3], seal=3, stream=lambda _: 1)
    await world.work()
    await world.store(1, 10, [1, 2, 3, 4], stream=lambda _: 1)
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3, 4])
    await world.work()
    assert not await world.has_day()
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3, 4])


async def test_attempts_whose_executor_is_gone_are_sealed_as_incomplete(world: Any) -> None:
    await world.store(1, 10, [1, 2, 3])
    await world.store(2, 10, [1, 2, 3])
    world.gateway.ended_attempts = {AttemptKey(1, 10): None, AttemptKey(2, 10): 3}
    did = await world.work()
    assert (did[0].action, did[0].tokens) == ("sealed", 2)
    rows = await world.sql("SELECT run_id, last_seq, incomplete FROM logs.tokens ORDER BY run_id")
    assert [(row["run_id"], row["last_seq"], row["incomplete"]) for row in rows] == [(1, 3, True), (2, 3, False)]
    assert not await world.has_day()
    # It was not gone for good: its own seal counts, and its lines are read with the others.
    await world.store(1, 10, [4], seal=4)
    await world.work()
    (row,) = await world.sql("SELECT last_seq, incomplete FROM logs.tokens WHERE run_id = 1")
    assert (row["last_seq"], row["incomplete"]) == (4, False)
    assert await world.read(1) == world.wanted(1, 10, [1, 2, 3, 4])


async def test_without_coordinators_sealed_attempts_are_archived_all_the_same(world: Any) -> None:
    await world.store(1, 10, [1, 2], seal=2)
    await world.store(2, 10, [1, 2])
    world.gateway.error = TobanError(ErrorCode.UNAVAILABLE, "no coordinator answers")
    assert [one.action for one in await world.work()] == ["failed", "archived"]
    (lease,) = await world.sql("SELECT last_error FROM logs.archive_lease")
    assert lease["last_error"] == "no coordinator answers"
    assert await world.has_day()


async def test_lines_that_lack_are_waited_for_after_the_seal(world: Any) -> None:
    await world.store(1, 10, [1, 2], seal=4)
    assert await world.work() == []
    await world.execute("UPDATE logs.tokens SET sealed_at = now() - interval '2 hours'")
    assert [one.action for one in await world.work()] == ["archived", "dropped"]


async def test_a_dry_run_says_what_a_pass_would_do_and_does_nothing(world: Any) -> None:
    await fill(world)
    await world.store(99, 10, [1])
    (would,) = [one async for one in world.archiver().plan()]
    assert (would.action, would.log_day, would.tokens) == ("would_archive", world.old, len(RUNS))
    assert would.message == "1 attempts have not ended"
    assert await world.sql("SELECT 1 FROM logs.objects") == []
    assert await world.has_day()


async def test_an_object_reads_without_the_database(world: Any) -> None:
    await fill(world)
    await world.work(target_bytes=1 << 20)
    (row,) = await world.sql("SELECT key, bytes, log_day FROM logs.objects")
    body = await world.bucket.read(row["key"], 0, row["bytes"])
    footer = body[-tlog.FOOTER_BYTES :]
    length = tlog.index_length(footer)
    index = tlog.read_index(body[-tlog.FOOTER_BYTES - length : -tlog.FOOTER_BYTES], footer)
    assert index.log_day == world.old
    assert {frame.run_id for frame in index.frames} == set(RUNS)
    assert sum(frame.line_count for frame in index.frames) == sum(map(len, RUNS.values()))
