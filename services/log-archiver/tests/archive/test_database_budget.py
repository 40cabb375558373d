"""The budget of schema logs: days that go early, output that is left out and counted, and what `toban doctor` is told of it all."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from toban_domain.dropped_lines import dropped_line_count
from toban_domain.settings import Settings
from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.app import diagnose
from toban_log_archiver.app.ingest_budget import SMALL_BYTES, IngestBudget, stored_places
from toban_log_archiver.decide import database_budget
from toban_log_archiver.decide import diagnose as checks
from toban_log_archiver.loops import archive_watch
from toban_log_archiver.loops.archive_watch import ArchiveWatch
from toban_log_archiver.store import archive_reads, chunks, log_attempts, partitions
from toban_log_archiver.store.log_attempts import TokenNote
from toban_proto.v1.logs_pb2 import LogLine
from toban_store.tx import tx
from toban_testing.memory_chunk_source import new_chunk

DAY = date(2031, 3, 10)
INCARNATION = "11111111-2222-4333-8444-555555555555"


async def fill_budget(world: Any, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """As if log_budget_db_gb (1) were `share` used."""
    world.settings.known = Settings({"log_budget_db_gb": 1})
    async with archive_reads.long_query_tx(world.pool) as t:
        gigabyte = (await archive_reads.volume(t)).chunks / share
    for module in (archive_watch, database_budget, diagnose):
        monkeypatch.setattr(module, "GB", gigabyte)


def test_days_that_go_early() -> None:
    days = [(DAY - timedelta(days=ago), ago > 7) for ago in (9, 8, 7, 2, 1, 0)]
    due = [DAY - timedelta(days=9), DAY - timedelta(days=8)]
    assert database_budget.due_days(days) == due
    assert database_budget.early_days(days, used=0.79, today=DAY) == []
    assert database_budget.early_days(days, used=0.8, today=DAY) == [DAY - timedelta(days=7), DAY - timedelta(days=2)]
    assert database_budget.early_days(days[4:], used=5.0, today=DAY) == [], "a day that still gets lines stays"
    assert [database_budget.is_full(used, was_full=was) for was in (False, True) for used in (0.94, 0.95, 1.0)] == [
        False, False, True, False, True, True,
    ]  # fmt: skip


async def test_a_day_goes_early_when_the_budget_is_nearly_used(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    young = [world.today - timedelta(days=ago) for ago in (4, 3)]
    for run_id, day in enumerate(young, start=1):
        await world.store(run_id, 10, [1, 2], day=day, seal=2)
    assert await world.work() == []
    await fill_budget(world, monkeypatch, 0.9)
    assert [(one.action, one.log_day) for one in await world.work()] == [("archived", young[0]), ("dropped", young[0])]
    assert await world.has_day(young[1])
    assert await world.read(1) == world.wanted(1, 10, [1, 2])


async def test_a_day_that_cannot_go_early_holds_no_other_day_back(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    young = [world.today - timedelta(days=ago) for ago in (5, 4, 3)]
    await world.store(1, 10, [1, 2], day=young[0])  # still runs
    for run_id, day in enumerate(young[1:], start=2):
        await world.store(run_id, 10, [1, 2], day=day, seal=2)
    await fill_budget(world, monkeypatch, 0.9)
    for day in young[1:]:
        assert [(one.action, one.log_day) for one in await world.work()] == [("archived", day), ("dropped", day)]
        await fill_budget(world, monkeypatch, 0.9)
    assert [await world.has_day(day) for day in young] == [True, False, False]


async def test_what_is_written_down_about_output_is_not_part_of_its_budget(world: Any) -> None:
    async def look() -> archive_reads.Volume:
        async with archive_reads.long_query_tx(world.pool) as t:
            return await archive_reads.volume(t)

    before = await look()
    await world.store(1, 10, list(range(1, 400)), day=world.old, seal=399, size=1)
    stored = await look()
    assert stored.chunks > before.chunks
    await world.work()
    after = await look()
    assert after.chunks < stored.chunks
    assert after.bookkeeping > stored.bookkeeping


def left_out_of(run_id: int) -> Any:
    lines = [LogLine(seq=seq, at_unix_nanos=10**18, stream=1, text=b"%d" % (seq * 7919**5)) for seq in range(1, 101)]  # type: ignore[arg-type]
    return new_chunk(run_id, 10, lines, log_day=DAY)


async def test_at_the_end_of_the_budget_a_line_counts_what_is_left_out() -> None:
    chunk = left_out_of(1)
    assert len(chunk.data) > SMALL_BYTES
    full = [False]

    async def stored(_asked: Any) -> set[Any]:
        return set()

    budget = IngestBudget(
        is_full=lambda: full[0], budget_text=lambda: "50 GB (log_budget_db_gb)", stored=stored, codec=LogLinesCodec()
    )
    assert await budget.admit([chunk]) == [chunk]
    full[0] = True
    small = replace(chunk, data=chunk.data[:SMALL_BYTES])
    kept, mark = await budget.admit([small, chunk])
    assert kept is small, "nothing is won by leaving it out"
    (line,) = LogLinesCodec().lines(mark.data)
    assert (mark.stream, mark.seq_from, mark.seq_to, mark.line_count) == (3, 100, 100, 1)
    assert (line.seq, dropped_line_count(line.text)) == (100, 100)
    assert (line.dropped_lines, line.dropped_chunk) == (100, True)
    assert line.text.decode().endswith("left out: more than the database may hold of logs, 50 GB (log_budget_db_gb)")
    assert mark.raw_bytes == len(line.text) + 1
    assert await budget.admit([mark]) == [mark]
    assert len(mark.data) < SMALL_BYTES


async def test_what_is_stored_already_and_comes_again_is_not_left_out(world: Any) -> None:
    """Its acknowledgement was lost. A line that counts it would tell of a loss that is none."""
    in_database, in_archive, new = (replace(left_out_of(run_id), log_day=world.old) for run_id in (1, 2, 3))
    async with tx(world.pool) as t:
        await partitions.ensure(t, first=world.old, last=world.old)
        await chunks.append(t, [in_archive])
        note = TokenNote(log_day=world.old, run_id=2, token=10, incarnation=INCARNATION, last_seq=100)
        await log_attempts.note(t, [note])
    await world.work()
    assert not await world.has_day()
    async with tx(world.pool) as t:
        await partitions.ensure(t, first=world.old, last=world.old)
        await chunks.append(t, [in_database])
    budget = IngestBudget(
        is_full=lambda: True, budget_text=lambda: "50 GB", stored=stored_places(world.pool), codec=LogLinesCodec()
    )
    taken = await budget.admit([in_database, new, in_archive])
    assert (taken[0], taken[2]) == (in_database, in_archive)
    assert (taken[1].stream, taken[1].line_count) == (3, 1)


async def test_health_and_doctor_speak_of_the_budget(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.store(1, 10, [1, 2])
    watch = ArchiveWatch(pool=world.pool, settings=world.settings, archiver=world.archiver())
    for share, full, status, words in (
        (0.5, False, "ok", "50% of 1 GB"),
        (0.85, False, "warning", "from 100 % on"),
        (1.02, True, "error", "is left out, and counted"),
    ):
        await fill_budget(world, monkeypatch, share)
        await watch.run_once()
        assert (watch.is_full, watch.check().status == "ok") == (full, status == "ok")
        found = await diagnose.diagnose(pool=world.pool, settings=world.settings, store=world.bucket, archiver=None)
        (one,) = [item for item in found if item.name == "log-budget"]
        assert one.status == status
        assert words in one.value + one.message


async def test_an_attempt_with_left_out_lines_is_archived_at_once(world: Any) -> None:
    """Its numbers have gaps that a line counts: nothing is waited for. A line that is really missing is."""
    text = "… 5 lines, 1 KiB left out: more than 10 lines a second (max_lines_per_second)".encode()
    said = "… this line (12 B) and what follows are left out, but for the last lines: more than 1 MiB (max_mb)".encode()
    for run_id, missing in ((1, False), (2, True)):
        await world.store(run_id, 10, [1, 2, 3] if not missing else [1, 3], stream=lambda _: 1)
        own = [
            LogLine(seq=seq, at_unix_nanos=10**18, stream=3, text=words)  # type: ignore[arg-type]
            for seq, words in ((4, said), (8, text))
        ]
        async with tx(world.pool) as t:
            note = TokenNote(log_day=world.old, run_id=run_id, token=10, incarnation=INCARNATION, last_seq=8)
            await log_attempts.note(t, [note])
            await chunks.append(t, [new_chunk(run_id, 10, own, log_day=world.old)])
    did = await world.work()
    assert [(one.action, one.tokens, one.lines) for one in did] == [("archived", 1, 5)]
    assert await world.sql("SELECT DISTINCT run_id FROM logs.manifests") == [{"run_id": 1}]
    # The missing line comes, and with it the attempt is whole.
    await world.store(2, 10, [2], stream=lambda _: 1)
    assert [one.action for one in await world.work()] == ["archived", "dropped"]


async def too_long(t: Any) -> Any:
    await t.execute("SET LOCAL statement_timeout = 1")
    await t.execute("SELECT pg_sleep(1)")


async def test_what_doctor_is_told(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(**given: Any) -> dict[str, Any]:
        parts = {"store": world.bucket, "archiver": world.archiver(), **given}
        return {one.name: one for one in await diagnose.diagnose(pool=world.pool, settings=world.settings, **parts)}

    well = await look()
    assert {one.status for one in well.values()} == {"ok"}
    names = {"log-settings", "log-migrations", "log-partitions", "log-backlog", "log-budget", "log-archive"}
    assert set(well) == {*names, "log-database-role"}
    for ago in (10, 9, 8):
        await world.store(ago, 10, [1], day=world.today - timedelta(days=ago))
    tomorrow = world.today + timedelta(days=1)
    await world.execute(f"DROP TABLE logs.chunks_{tomorrow:%Y%m%d}")
    await world.execute("DELETE FROM public.toban_migrations WHERE schema = 'logs' AND version = 3")
    await world.execute("REVOKE INSERT ON logs.tokens FROM toban_log_archiver")
    world.settings.received = False

    class Away:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.bucket, name)

        async def problem(self) -> str:
            return "the object store does not answer: refused"

    ill = await look(store=Away())
    assert {name: one.status for name, one in ill.items() if one.status != "ok"} == {
        "log-settings": "warning",
        "log-migrations": "error",
        "log-database-role": "error",
        "log-partitions": "error",
        "log-backlog": "error",
        "log-archive": "error",
    }
    assert ill["log-backlog"].value == f"3 days, from {world.today - timedelta(days=10)} on"
    assert ill["log-partitions"].value == tomorrow.isoformat()
    assert all(one.message and one.remedy for one in ill.values() if one.status != "ok")
    bare = await look(store=None, archiver=None)
    assert (bare["log-archive"].status, bare["log-backlog"].status) == ("warning", "ok")
    monkeypatch.setattr(diagnose.partitions, "migrations", too_long)
    assert ((await look())["log-database"].value, (await look())["log-database"].status) == ("slow", "warning")
    await world.pool.close()
    assert (await look())["log-database"].status == "error"


def test_findings_of_a_database_that_is_ahead() -> None:
    newer = checks.migrations(pending=[], changed=[], newer=["logs/0009"], applied=3)
    changed = checks.migrations(pending=[], changed=["logs/0001"], newer=[], applied=3)
    assert (newer.status, changed.status) == ("warning", "error")
