"""An executor is killed and nobody starts it again: what its guards kept is reported, and its death attested (docs/fencing.md 3.8)."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.process_tree import children, start_time
from toban_proto.v1.common_pb2 import OUTCOME_KIND_SUCCEEDED
from toban_testing.fake_coordinator import EPOCH


def secret_of(world: Any) -> str:
    return str((world.executor.state / "instance-secret").read_text())


async def running_job(world: Any, file: Path, number: int = 1) -> int:
    """A job that never ends by itself; its pid."""
    await world.start(world.order(number, "sh", "-c", f"echo $$ > {file}; exec sleep 1000"))
    return int(await world.until(lambda: file.exists() and file.read_text().strip()))


async def kill(world: Any) -> None:
    """SIGKILL of the executor, which is not started again."""
    world.executor.process.kill()
    world.executor.process.wait()


async def one_witnessed(world: Any) -> Any:
    """The one attestation, when its witness has ended."""
    await world.until(lambda: world.coordinator.witnessed, 20)
    await world.until(lambda: not world.executor.witnesses())
    [(word, reports_before)] = world.coordinator.witnessed
    return word, reports_before


async def test_the_death_of_an_executor_is_attested_when_its_jobs_are_gone(world: Any, tmp_path: Path) -> None:
    job = await running_job(world, tmp_path / "pid")
    await kill(world)
    word, _ = await one_witnessed(world)
    assert start_time(job) == 0
    [registered] = world.coordinator.registered
    assert (word.incarnation, word.stopped, list(word.held)) == (registered.incarnation, True, [])
    assert word.nonce >= world.coordinator.beats[-1].nonce > 1000, "else a coordinator takes it for a copy"
    assert word.instance_secret == registered.instance_secret == secret_of(world)
    [line] = [one for one in world.executor.log().splitlines() if "its runs restart elsewhere now" in one]
    assert "the executor has died" in line and registered.incarnation in line


async def test_a_job_that_had_ended_is_reported_before_the_death_is_attested(world: Any) -> None:
    """The executor is stopped when the job ends: only the guard has its exit code. The lines come too."""
    go = world.tmp / "go"
    os.mkfifo(go)
    await world.start(world.order(1, "sh", "-c", f"read line < {go}; echo last"))
    [job] = await world.until(lambda: [pid for slot in slots(world) for pid in children(slot)])
    os.kill(world.executor.pid, signal.SIGSTOP)
    with go.open("w") as pipe:
        pipe.write("now\n")
    await world.until(lambda: start_time(job) == 0)
    await kill(world)
    outcome = await world.outcome(1, 20)
    assert (outcome.kind, outcome.last_line) == (OUTCOME_KIND_SUCCEEDED, "last")
    _, reports_before = await one_witnessed(world)
    assert reports_before >= 1, "else the run would be taken for lost"
    await world.until(lambda: world.archiver.text((1, EPOCH | 1)) == [b"last"])


def outcomes_in_journal(world: Any) -> int:
    """How many outcomes wait for a coordinator."""
    with contextlib.closing(sqlite3.connect(world.executor.state / "journal.sqlite3")) as connection:
        return int(connection.execute("SELECT count(*) FROM reports").fetchone()[0])


def slots(world: Any) -> list[int]:
    """The slot supervisors."""
    [supervisor] = children(world.executor.pid)
    return children(supervisor)


async def test_nothing_is_attested_when_a_guard_is_missing(world: Any, tmp_path: Path) -> None:
    """Outcomes that other guards kept are reported all the same."""
    world.coordinator.silent = True
    await world.start(world.order(2, "true"))
    await world.until(lambda: outcomes_in_journal(world))
    job = await running_job(world, tmp_path / "pid")
    [slot] = [pid for pid in slots(world) if job in children(pid)]
    os.kill(world.executor.pid, signal.SIGSTOP)
    os.kill(slot, signal.SIGKILL)
    await world.until(lambda: start_time(job) == 0)
    await kill(world)
    world.coordinator.silent = False
    assert (await world.outcome(2, 20)).kind == OUTCOME_KIND_SUCCEEDED
    await world.until(
        lambda: "a guard of its jobs with it: its runs restart when its lease" in world.executor.log(), 20
    )
    await world.until(lambda: not world.executor.witnesses())
    assert world.coordinator.witnessed == []


async def test_an_executor_goes_before_a_witness(world: Any) -> None:
    """Only one acts on a state directory: the next executor ends the witness, and brings along what it had not reported."""
    world.coordinator.silent = True
    await world.start(world.order(1, "echo", "kept"))
    await world.until(lambda: outcomes_in_journal(world))
    await kill(world)
    await world.until(lambda: "death of an executor cannot be attested yet" in world.executor.log(), 20)
    [witness] = world.executor.witnesses()
    world.executor.start()
    await world.until(lambda: start_time(witness) == 0)
    await world.until(lambda: "register failed" in world.executor.log(), 20)
    world.coordinator.silent = False
    await world.granted(incarnations=2)
    first, second = world.coordinator.registered
    assert (second.previous_incarnation, second.previous_verified_empty) == (first.incarnation, True)
    assert [one.outcome.last_line for one in second.reports] == ["kept"]
    assert (world.coordinator.witnessed, world.executor.witnesses()) == ([], [])
    assert second.instance_secret == first.instance_secret


@pytest.mark.long
async def test_an_executor_that_is_there_again_needs_no_witness(world: Any, tmp_path: Path) -> None:
    """The guards end after the next executor has begun to wait for them."""
    await running_job(world, tmp_path / "pid")
    [supervisor] = children(world.executor.pid)
    os.kill(supervisor, signal.SIGSTOP)
    await kill(world)
    world.executor.start()
    await world.until(lambda: locked_by(world, world.executor.pid))
    os.kill(supervisor, signal.SIGCONT)
    await world.granted(incarnations=2)
    await world.until(lambda: "an executor has the state directory already" in world.executor.log(), 20)
    assert world.coordinator.witnessed == []
    assert world.coordinator.registered[1].previous_verified_empty


def locked_by(world: Any, pid: int) -> bool:
    """Whether this process has the lock of the state directory open."""
    return str(world.executor.state / "lock") in open_files(pid)


def open_files(pid: int) -> list[str]:
    """What its descriptors are."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return found


async def test_an_orderly_stop_needs_no_witness(world: Any) -> None:
    world.executor.process.terminate()
    await asyncio.to_thread(world.executor.process.wait)
    # The guards start it before they end, and the executor waits for them.
    assert (world.executor.witnesses(), world.coordinator.witnessed) == ([], [])
    assert world.coordinator.beats[-1].stopped


async def test_secrets_are_in_no_argument_variable_or_log(world: Any, tmp_path: Path) -> None:
    file = world.executor.state / "instance-secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await running_job(world, tmp_path / "pid")
    for slot in slots(world):
        assert not [name for name in open_files(slot) if "toban-witness" in name], "a guard of a job does not have them"
    world.coordinator.silent = True
    await kill(world)
    await world.until(lambda: "death of an executor cannot be attested yet" in world.executor.log(), 20)
    [witness] = world.executor.witnesses()
    shown = visible(witness) + world.executor.log().encode()
    for secret in (secret_of(world), f"key-{world.coordinator.registered[0].incarnation}"):
        assert secret.encode() not in shown
    world.coordinator.silent = False
    await one_witnessed(world)


def visible(pid: int) -> bytes:
    """What other users may see of a process."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


@pytest.mark.long
async def test_a_witness_gives_up_when_the_lease_has_long_ended(world_maker: Any) -> None:
    world = world_maker(lease_ms=1500)
    try:
        await world.open()
        world.coordinator.silent = True
        await kill(world)
        await world.until(lambda: "witness of a dead executor gave up" in world.executor.log(), 30)
        await world.until(lambda: not world.executor.witnesses())
        assert world.coordinator.witnessed == []
    finally:
        await world.close()


@pytest.mark.parametrize("arguments", [[], ["--outcomes-only"]])
def test_a_witness_is_not_started_by_hand(arguments: list[str], capsys: Any) -> None:
    from toban_executor.main.witness import main

    assert main(arguments) == 64
    assert "started by the guards of an executor, not by hand" in capsys.readouterr().err
