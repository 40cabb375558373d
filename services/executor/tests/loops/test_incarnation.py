"""The lives of an executor process: lease loss, being put off, restarts, crashes, shutdown."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.guard.clock import boottime
from toban_executor.guard.process_tree import children
from toban_proto.v1 import common_pb2, executor_pb2

EPOCH = (1 << 51) | (1 << 27)
FAILED = common_pb2.OUTCOME_KIND_FAILED
STUBBORN = "trap '' TERM; while :; do sleep 0.05; done"


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def run_executor(env: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "toban_executor"]
    return subprocess.run(command, env=env, capture_output=True, timeout=20, check=False)


async def job_pid(world: Any, file: Path) -> int:
    return int(await world.until(lambda: file.exists() and file.read_text().strip()))


@pytest.fixture
async def short(world_maker: Any) -> AsyncIterator[Any]:
    """A world whose lease is short."""
    made = world_maker(lease_ms=4000)
    await made.open()
    yield made
    await made.close()


async def test_put_off_by_the_cluster(shared_world: Any, tmp_path: Path) -> None:
    world = shared_world
    file = tmp_path / "pid"
    await world.start(world.order(1, "sh", "-c", f"echo $$ > {file}; {STUBBORN}"))
    pid = await job_pid(world, file)
    world.coordinator.state = "off"
    await world.until(lambda: not lives(pid), 60)
    await world.granted(incarnations=2)
    assert world.coordinator.registered[1].previous_verified_empty
    assert (await world.outcome(1)).reason == "continuation_refused"


async def test_cut_ends_jobs_at_once_and_off_joins_again(shared_world: Any) -> None:
    world = shared_world
    await world.start(world.order(1, "sh", "-c", STUBBORN))
    world.coordinator.state = "cut"
    assert (await world.outcome(1)).reason == "continuation_refused"
    assert len(world.coordinator.registered) == 1
    world.coordinator.state = "off"
    await world.granted(incarnations=2)


async def test_two_executors_cannot_share_a_state_directory(shared_world: Any, tmp_path: Path) -> None:
    world = shared_world
    env = world.executor.env | {"SCHEDULER_READY_FILE": str(tmp_path / "other")}
    other = run_executor(env)
    assert other.returncode == 78
    assert b"belongs to a running executor" in other.stderr
    assert other.stderr.count(b"\n") == 1


@pytest.mark.seed(19, 99)
async def test_a_lost_lease_kills_jobs_in_time_and_a_new_incarnation_follows(
    short: Any, tmp_path: Path, at_most: Any
) -> None:
    world, file = short, tmp_path / "pid"
    await world.start(world.order(1, "sh", "-c", f"echo $$ > {file}; {STUBBORN}"))
    pid = await job_pid(world, file)
    world.coordinator.silent = True
    last_grant = boottime()
    await world.until(lambda: not lives(pid), 60)
    assert boottime() - last_grant < at_most(world.coordinator.lease_ms / 1000)
    await world.until(lambda: "lease lost" in world.executor.log())
    world.coordinator.silent = False
    await world.granted(incarnations=2)
    outcome = await world.outcome(1)
    assert (outcome.kind, outcome.reason) == (FAILED, "continuation_refused")
    first, second = world.coordinator.registered[:2]
    assert second.previous_incarnation == first.incarnation != second.incarnation
    assert second.previous_verified_empty
    assert second.instance == first.instance
    assert (await world.start(world.order(2, "true")))[0].accepted
    assert (await world.outcome(2)).kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    assert world.executor.process.poll() is None


@pytest.mark.long
async def test_a_stopped_guard_does_not_save_a_job(short: Any, tmp_path: Path) -> None:
    """The executor's own timer is the second line."""
    world, file = short, tmp_path / "pid"
    await world.start(world.order(1, "sh", "-c", f"echo $$ > {file}; {STUBBORN}"))
    pid = await job_pid(world, file)
    record = json.loads(next((world.tmp / "state" / "guards").glob("*.json")).read_text())
    keepers = children(record["master"])
    guards = [record["master"], *keepers]
    for guard in guards:
        os.kill(guard, signal.SIGSTOP)
    try:
        world.coordinator.silent = True
        await world.until(lambda: not lives(pid), 60)
        world.coordinator.silent = False
        await world.granted(incarnations=2)
    finally:
        for guard in filter(lives, guards):
            os.kill(guard, signal.SIGCONT)
    assert not any(lives(keeper) for keeper in keepers)


@pytest.mark.long
async def test_a_lost_answer_to_register_makes_a_new_incarnation(world_maker: Any) -> None:
    world = world_maker()
    real, tried = world.coordinator.Register, []

    async def register(request: Any, context: Any) -> Any:
        """As a coordinator does, whose first answer is lost after the commit."""
        if request.incarnation in tried:
            raise TobanError(ErrorCode.ALREADY_EXISTS, "registered already")
        tried.append(request.incarnation)
        if len(tried) == 1:
            raise TobanError(ErrorCode.UNAVAILABLE, "the connection broke")
        return await real(request, context)

    world.coordinator.Register = register
    try:
        await world.open()
        [request] = world.coordinator.registered
        assert (request.previous_incarnation, request.previous_verified_empty) == (tried[0], True)
    finally:
        await world.close()


async def test_kill_of_the_executor_takes_its_jobs_along(world: Any, tmp_path: Path, at_most: Any) -> None:
    file = tmp_path / "pid"
    inner = "trap '' TERM; echo $$ > " + str(file) + "; sleep 1000"
    await world.start(world.order(1, "sh", "-c", f'setsid sh -c "{inner.replace("$", chr(92) + "$")}" & wait'))
    pid = await job_pid(world, file)
    world.executor.process.kill()
    world.executor.process.wait()
    begun = boottime()
    await world.until(lambda: not lives(pid))
    assert boottime() - begun < at_most(1)
    world.executor.start()
    await world.granted(incarnations=2)
    first, second = world.coordinator.registered
    assert (second.previous_incarnation, second.previous_verified_empty) == (first.incarnation, True)
    refused = await world.start(world.order(1, "true"), header=world.header(incarnation=first.incarnation))
    assert refused[0].refusal == "WRONG_INCARNATION"
    assert second.epoch_max == EPOCH


async def test_outcomes_and_lines_outlive_a_crash(world: Any) -> None:
    world.archiver.down = True
    world.coordinator.silent = True
    await world.start(world.order(1, "echo", "kept"))
    await world.until(lambda: journal_has(world, "chunks", "reports"))
    world.executor.kill_without_witness()
    # A report that the killed process sent last may wait in the coordinator's socket: it goes unanswered.
    await world.coordinators_down()
    world.archiver.down = world.coordinator.silent = False
    await world.coordinators_up()
    world.executor.start()
    assert (await world.outcome(1)).last_line == "kept"
    # It came with the registration, before anybody could take the run for lost.
    [told] = world.coordinator.registered[1].reports
    assert (told.key.run_id, told.outcome.last_line) == (1, "kept")
    await world.until(lambda: world.archiver.text(world.key(1)) == [b"kept"])
    await world.until(lambda: not journal_has(world, "chunks") and not journal_has(world, "reports"))


def journal_has(world: Any, *tables: str) -> bool:
    import sqlite3

    connection = sqlite3.connect(world.tmp / "state" / "journal.sqlite3")
    try:
        return all(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
    finally:
        connection.close()


async def test_tombstones_outlive_a_crash(world: Any) -> None:
    keys = [common_pb2.AttemptKey(run_id=5, token=EPOCH | 5)]
    await world.worker.Revoke(executor_pb2.RevokeRequest(header=world.header(), keys=keys), timeout=60)
    world.executor.process.kill()
    world.executor.process.wait()
    world.executor.start()
    await world.granted(incarnations=2)
    assert (await world.start(world.order(5, "true")))[0].refusal == "TOMBSTONE"


@pytest.mark.seed(183)
async def test_sigterm_drains_then_ends_what_is_left(world_maker: Any) -> None:
    world = world_maker()
    await world.open(SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS="1")
    await world.start(world.order(1, "sleep", "0.5"), world.order(2, "sh", "-c", STUBBORN, grace_seconds=0.3))
    world.executor.process.terminate()
    short, long = await world.outcome(1), await world.outcome(2)
    assert short.kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    assert (long.kind, long.reason, long.signal) == (FAILED, "forced_shutdown", 9)
    assert world.executor.process.wait(timeout=60) == 0
    await world.close()


@pytest.mark.seed(184)
async def test_an_idle_executor_stops_at_once(world: Any, at_most: Any) -> None:
    begun = boottime()
    world.executor.process.terminate()
    # In a thread: the coordinator has to go on answering.
    assert await asyncio.to_thread(world.executor.process.wait, timeout=60) == 0
    assert boottime() - begun < at_most(3)
    assert [beat.stopped for beat in world.coordinator.beats[-2:]] == [False, True], "its last word"
    assert world.coordinator.beats[-2].draining


async def test_the_allow_list(world_maker: Any, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("# ours\necho\nargs: x ...\n/bin/true\nshell: false\nsh\nbash\nenv: TZ\n")
    world = world_maker()
    await world.open(SCHEDULER_ALLOW_LIST=str(allowed))
    results = await world.start(
        world.order(1, "echo", "x", env={"TZ": "UTC"}),
        world.order(2, "/bin/true"),
        world.order(3, "sleep", "1"),
        world.order(4, "sh", "-c", "true"),
        world.order(5, "echo", "y"),
        # The variables with which a listed program runs any other.
        world.order(6, "/bin/true", env={"BASH_ENV": f"$(touch {tmp_path}/ran)"}),
        world.order(7, "/bin/true", env={"GIT_CONFIG_COUNT": "1"}),
        world.order(8, "/bin/true", env={"PATH": "/nowhere"}),
        world.order(9, "/bin/true", env={"OTHER": "1"}),
    )
    assert [result.refusal for result in results] == ["", "", *["PROGRAM_NOT_ALLOWED"] * 7]
    assert "changes what programs run" in results[5].message
    assert not (tmp_path / "ran").exists()
    assert (await world.outcome(1)).last_line == "x"
    await world.close()


async def test_a_full_log_budget_holds_back_output_only(world_maker: Any, tmp_path: Path) -> None:
    world = world_maker()
    await world.open(SCHEDULER_LOG_BUDGET_MB="1")
    try:
        world.archiver.down = True
        noise = "head -c 20000000 /dev/urandom | base64; echo last"
        await world.start(world.order(1, "sh", "-c", noise))
        await world.until(lambda: journal_bytes(world) > 1 << 20)
        await world.start(world.order(2, "echo", "short"), world.order(3, "sh", "-c", "yes noise"))
        assert (await world.outcome(2)).last_line == "short"
        beats = world.coordinator.beats
        await world.until(lambda: {item.key.run_id for item in beats[-1].held} == {1, 3})
        end = executor_pb2.CancelOrder(
            key=common_pb2.AttemptKey(run_id=3, token=EPOCH | 3), mode="kill", reason="asked"
        )
        await world.worker.CancelJob(executor_pb2.CancelJobRequest(header=world.header(), orders=[end]), timeout=60)
        assert (await world.outcome(3)).kind == common_pb2.OUTCOME_KIND_CANCELED
        await world.until(lambda: beats[-1].free_slots == 3)
        assert world.key(1) not in world.coordinator.outcomes
        world.archiver.down = False
        assert (await world.outcome(1, 30)).last_line == "last"
    finally:
        await world.close()


def journal_bytes(world: Any) -> int:
    import sqlite3

    connection = sqlite3.connect(world.tmp / "state" / "journal.sqlite3")
    try:
        return int(connection.execute("SELECT coalesce(sum(length(data)), 0) FROM chunks").fetchone()[0])
    finally:
        connection.close()


async def test_a_copied_state_directory_is_another_instance(world: Any) -> None:
    import sqlite3

    world.executor.process.kill()
    world.executor.process.wait()
    with sqlite3.connect(world.tmp / "state" / "journal.sqlite3") as connection:
        connection.execute("UPDATE meta SET value = 'another machine' WHERE key = 'machine'")
    connection.close()
    world.executor.start()
    await world.granted(incarnations=2)
    assert "was copied from another executor" in world.executor.log()
    first, second = world.coordinator.registered
    assert second.instance not in ("", first.instance)
    assert second.instance_secret not in ("", first.instance_secret), "the original keeps its own"
    assert (second.previous_incarnation, second.previous_verified_empty) == ("", False)
    world.executor.process.kill()
    world.executor.process.wait()
    world.executor.start()
    await world.granted(incarnations=3)
    third = world.coordinator.registered[2]
    assert (third.instance, third.previous_incarnation) == (second.instance, second.incarnation)


@pytest.mark.long
async def test_a_superseded_copy_reports_nothing_and_comes_back_as_another_instance(world_maker: Any) -> None:
    """Its runs go on in the other copy, whose outcomes count, and whose end it cannot attest."""
    world = world_maker(lease_ms=3000)
    await world.open()
    try:
        await world.start(world.order(1, "sh", "-c", "sleep 600"))
        world.coordinator.superseded = True
        await world.until(lambda: "was copied from another executor" in world.executor.log(), 30)
        assert "another copy of this executor has its lease" in world.executor.log()
        world.coordinator.superseded = False
        await world.granted(incarnations=2)
        first, second = world.coordinator.registered[:2]
        assert [(report.key.run_id, report.HasField("outcome")) for report in second.reports] == [(1, True)]
        assert second.instance not in ("", first.instance)
        assert (second.previous_incarnation, second.previous_verified_empty) == ("", False)
    finally:
        await world.close()


@pytest.mark.long
async def test_an_outage_of_all_coordinators(world_maker: Any, tmp_path: Path, at_most: Any) -> None:
    """Shorter than the lease it costs nothing; longer, it costs the running jobs, and the executor comes back by itself."""
    world, file = world_maker(lease_ms=3000), tmp_path / "pid"
    await world.open()
    try:
        await world.start(
            # A short grace: with the default one, its end would begin in the first outage.
            world.order(1, "sh", "-c", f"echo $$ > {file}; {STUBBORN}", lease_loss_grace_seconds=0.2),
            world.order(2, "sh", "-c", "sleep 0.5; echo on"),
        )
        pid = await job_pid(world, file)
        await world.coordinators_down()
        went = boottime()
        await world.until(lambda: boottime() - went > 1.2)
        assert lives(pid)
        assert world.key(2) not in world.coordinator.outcomes
        await world.coordinators_up()
        assert (await world.outcome(2)).last_line == "on"
        assert (await world.start(world.order(3, "true")))[0].accepted
        assert len(world.coordinator.registered) == 1
        assert lives(pid)
        await world.coordinators_down()
        went = boottime()
        await world.until(lambda: not lives(pid), 60)
        assert boottime() - went < at_most(3.0)
        await world.until(lambda: "lease lost" in world.executor.log())
        await world.coordinators_up()
        await world.granted(incarnations=2)
        assert (await world.outcome(1)).reason == "continuation_refused"
        assert world.coordinator.registered[1].previous_verified_empty
        assert (await world.start(world.order(4, "true")))[0].accepted
        assert (await world.outcome(4)).kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    finally:
        await world.close()
