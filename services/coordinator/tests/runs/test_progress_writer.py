"""What jobs say of their progress: onto the live run of the right attempt, into the history, never in anybody's way."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.loops.progress_writer import MAX_WAITING, ProgressWriter
from toban_coordinator.server.executor_messages import progress_from_pb
from toban_coordinator.store.runs import runs_finish
from toban_domain.outcome import AttemptKey
from toban_domain.progress import Progress
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import executor_pb2
from toban_store.errors import StoreError
from toban_transport.convert import key_to_pb, progress_to_text

AT = datetime(2026, 11, 21, 3, tzinfo=UTC)


def said(percentage: float, summary: str = "") -> Progress:
    return Progress(percentage=percentage, summary=summary, at=AT)


@pytest.fixture
def writer(world: Any) -> ProgressWriter:
    return ProgressWriter(pool=world.pool)


async def shown(world: Any, run: int) -> tuple[Any, ...]:
    """What readers are told."""
    reader = world.reader
    text = (await reader.GetRun(pb.GetRunRequest(id=run), None)).progress_json
    [listed] = [one for one in (await reader.ListRuns(pb.ListRunsRequest(), None)).runs if one.id == run]
    assert listed.progress_json == text
    told = json.loads(text or "{}")
    return told.get("percentage"), told.get("summary")


async def dispatched(world: Any, make: Any, count: int = 1, **spec: Any) -> tuple[str, list[int]]:
    executor = await world.executor(slots=10)
    await world.apply(make.job(**spec))
    runs = await world.start(count=count)
    await world.turn("assign")
    return executor, runs


@pytest.mark.seed(142)
async def test_many_runs_are_written_in_one_turn_and_watchers_see_the_change(
    world: Any, make: Any, writer: ProgressWriter
) -> None:
    executor, runs = await dispatched(world, make, count=5)
    versions = {run: (await world.run(run))["version"] for run in runs}
    writer.put(executor, {world.key(run): said(run % 100) for run in runs})
    writer.put(executor, {world.key(runs[0]): said(40, "half way")})
    assert await writer.run_once() == 5
    assert await shown(world, runs[0]) == (40, "half way")
    assert await shown(world, runs[1]) == (runs[1] % 100, "")
    assert {run: (await world.run(run))["version"] - versions[run] for run in runs} == dict.fromkeys(runs, 1)
    writer.put(executor, {world.key(runs[0]): said(40, "half way")})
    assert await writer.run_once() == 0, "the same again changes nothing"


@pytest.mark.seed(164)
async def test_only_the_attempt_that_holds_the_run_is_believed(world: Any, make: Any, writer: ProgressWriter) -> None:
    executor, [run] = await dispatched(world, make)
    key = world.key(run)
    other = await world.executor(2)
    writer.put(other, {key: said(1)})
    assert await writer.run_once() == 0, "another incarnation"
    writer.put(executor, {AttemptKey(run, key.token - 1): said(2)})
    assert await writer.run_once() == 0, "an older attempt"
    assert await shown(world, run) == (None, None)


async def test_the_last_word_comes_with_the_outcome_and_stays(world: Any, make: Any, writer: ProgressWriter) -> None:
    executor, [run, silent, early] = await dispatched(world, make, count=3)
    writer.put(executor, {world.key(run): said(50), world.key(early): said(70)})
    await writer.run_once()
    await world.report(world.key(run), replace(make.outcome(), progress=said(100, "done")))
    await world.report(world.key(silent), make.outcome())
    await world.report(world.key(early), make.outcome("FAILED", exit_code=1))
    assert await shown(world, run) == (100, "done")
    assert await shown(world, silent) == (None, None)
    assert await shown(world, early) == (70, ""), "the outcome said nothing: what was written stays"
    writer.put(executor, {world.key(run): said(1)})
    assert await writer.run_once() == 0, "a terminal run never changes"
    assert await shown(world, run) == (100, "done")


async def test_an_equal_outcome_that_comes_twice_is_the_same(world: Any, make: Any) -> None:
    _, [run] = await dispatched(world, make)
    outcome = replace(make.outcome("FAILED", exit_code=1), progress=said(99, "nearly"))
    assert (await world.report(world.key(run), outcome)).value == "accepted"
    assert (await world.report(world.key(run), outcome)).value == "already_accepted"
    assert "progress" not in runs_finish.outcome_json(make.outcome())


async def test_an_older_word_of_the_same_attempt_never_replaces_a_newer_one(
    world: Any, make: Any, writer: ProgressWriter
) -> None:
    """Heartbeats of one executor go to several coordinators, and each writes at its own time."""
    incarnation, [run] = await dispatched(world, make)
    key = world.key(run)
    older, newer = (replace(said(percentage), at=AT + timedelta(seconds=percentage)) for percentage in (9.5, 10))
    other = ProgressWriter(pool=world.pool)
    writer.put(incarnation, {key: newer})
    writer.put(incarnation, {key: older})
    assert await writer.run_once() == 1
    other.put(incarnation, {key: older})
    assert await other.run_once() == 0
    assert (await shown(world, run))[0] == 10
    latest = replace(said(5), at=newer.at + timedelta(microseconds=1))
    other.put(incarnation, {key: latest})
    assert await other.run_once() == 1, "what was said later counts, whatever its percentage"


async def test_a_retry_begins_without_progress(world: Any, make: Any, writer: ProgressWriter) -> None:
    executor, [run] = await dispatched(world, make, retry={"max_retries": 1})
    writer.put(executor, {world.key(run): said(80)})
    await writer.run_once()
    await world.report(world.key(run), replace(make.outcome("FAILED", exit_code=1), progress=said(90)))
    assert await world.state(run) == "PENDING"
    assert await shown(world, run) == (None, None)


async def test_what_postgresql_did_not_take_waits_and_is_bounded(world: Any, make: Any, writer: ProgressWriter) -> None:
    executor, [run] = await dispatched(world, make)
    await world.sql("ALTER TABLE scheduler.runs_live RENAME COLUMN progress TO gone")
    writer.put(executor, {world.key(run): said(10)})
    with pytest.raises(StoreError):
        await writer.run_once()
    writer.put(executor, {world.key(run): said(20)})
    writer.put(executor, {AttemptKey(10**6 + n, 1): said(1) for n in range(MAX_WAITING)})
    await world.sql("ALTER TABLE scheduler.runs_live RENAME COLUMN gone TO progress")
    assert await writer.run_once() == 1
    assert await shown(world, run) == (20, ""), "the newest word"
    assert not writer._waiting


def test_a_heartbeat_with_nonsense_in_it_is_a_heartbeat() -> None:
    good, bad, none = AttemptKey(1, 2), AttemptKey(3, 4), AttemptKey(5, 6)
    texts = {good: progress_to_text(said(5, "five")), bad: '{"percentage": 400}', none: ""}
    held = [executor_pb2.HeldAttempt(key=key_to_pb(key), progress_json=text) for key, text in texts.items()]
    held.append(executor_pb2.HeldAttempt(key=key_to_pb(AttemptKey(7, 8)), progress_json="[" * 4000))
    assert progress_from_pb(pb.HeartbeatRequest(held=held)) == {good: said(5, "five")}
