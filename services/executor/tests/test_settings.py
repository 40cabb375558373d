"""Settings and an operator's detach in an executor process."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from toban_executor.adapters import initial_slots
from toban_executor.guard.clock import boottime
from toban_testing.waiting import until_async

UNSET = "<unset>"


# ---------------------------------------------------------------- the process


@pytest.fixture
def world(shared_world: Any) -> Any:
    return shared_world


@pytest_asyncio.fixture(loop_scope="module")
async def opened(world_maker: Any) -> AsyncIterator[Any]:
    """`await opened(max_jobs=0, lease_ms=10_000, **variables)` is an executor with a grant."""
    worlds = []

    async def make(*, max_jobs: int = 0, lease_ms: int = 10_000, **variables: Any) -> Any:
        world = world_maker(lease_ms=lease_ms)
        world.coordinator.max_jobs = max_jobs
        worlds.append(world)
        await world.open(**variables)
        return world

    yield make
    for world in worlds:
        await world.close()


@pytest.mark.seed(62)
async def test_a_new_heartbeat_interval_counts_at_once(world: Any, at_most: Any) -> None:
    coordinator = world.coordinator
    await world.until(lambda: coordinator.watched)
    coordinator.settings.set(heartbeat_interval_seconds=3.0)
    await world.until(lambda: coordinator.beats[-1].settings_version == coordinator.settings.known.version)

    async def pause() -> float:
        before, begun = len(coordinator.beats), boottime()
        await world.until(lambda: len(coordinator.beats) > before)
        return boottime() - begun

    # Half of three seconds: this process may notice a heartbeat late.
    await until_async(pause, lambda seconds: seconds > 1.5)
    before = len(coordinator.beats)
    begun = boottime()
    coordinator.settings.set(heartbeat_interval_seconds=0.2)
    await world.until(lambda: len(coordinator.beats) >= before + 4)
    # Four with the old interval would take twelve seconds.
    assert boottime() - begun < at_most(2.0)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_interval_never_outlasts_a_short_lease(opened: Any) -> None:
    world = await opened(lease_ms=4000)
    await world.until(lambda: world.coordinator.watched)
    coordinator = world.coordinator
    coordinator.settings.set(heartbeat_interval_seconds=60)
    await world.until(lambda: coordinator.beats[-1].settings_version == coordinator.settings.known.version)
    # A lease has room for three intervals, so four of them are longer.
    before = len(coordinator.beats)
    await world.until(lambda: len(coordinator.beats) >= before + 4)
    assert len(world.coordinator.registered) == 1, "the lease did not run out"


async def test_a_coordinator_that_ends_costs_no_setting(world: Any) -> None:
    coordinator = world.coordinator
    await world.until(lambda: coordinator.watched)
    await world.coordinators_down()
    coordinator.settings.set(heartbeat_interval_seconds=0.4)
    await world.coordinators_up()
    await world.until(lambda: coordinator.beats[-1].settings_version == coordinator.settings.known.version)
    assert coordinator.watched >= 2
    coordinator.settings.set(heartbeat_interval_seconds=0.2)


@pytest.mark.seed(183)
@pytest.mark.parametrize(("own", "seconds"), [(UNSET, 0.5), pytest.param("1.5", 1.5, marks=pytest.mark.long)])
@pytest.mark.asyncio(loop_scope="module")
async def test_how_long_jobs_go_on_at_the_end(
    opened: Any, tmp_path: Path, own: str, seconds: float, at_most: Any
) -> None:
    """The setting says it, and a variable of the executor wins over it."""
    world, file = await opened(SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS=own), tmp_path / "up"
    world.coordinator.settings.set(shutdown_timeout_seconds=0.5)
    await world.until(lambda: world.coordinator.beats[-1].settings_version == world.coordinator.settings.known.version)
    await world.start(world.order(1, "sh", "-c", f"touch {file}; sleep 30"))
    await world.until(file.exists)
    begun = boottime()
    world.executor.process.terminate()
    assert (await world.outcome(1)).reason == "forced_shutdown"
    assert seconds <= boottime() - begun < seconds + at_most(3)


@pytest.mark.asyncio(loop_scope="module")
async def test_slots_come_from_the_setting_when_the_executor_does_not_say(opened: Any) -> None:
    """More than it has: it registers again with so many. Fewer: it uses fewer, and makes fewer at its next start."""
    world = await opened(max_jobs=18, SCHEDULER_SLOTS=UNSET)
    coordinator = world.coordinator
    await world.granted(incarnations=2)
    assert [one.slots for one in coordinator.registered] == [0, 0]
    assert coordinator.registered[1].previous_incarnation == coordinator.registered[0].incarnation
    assert coordinator.registered[1].previous_verified_empty
    await world.until(lambda: coordinator.beats[-1].free_slots == 18)
    coordinator.max_jobs = 2
    world.executor.stop()
    world.executor.start()
    await world.granted(incarnations=3)
    await world.until(lambda: coordinator.beats[-1].free_slots == 2)
    assert (world.executor.state / "max-jobs").read_text() == "2\n"


FEW_FILES = ("prlimit", "--nofile=100:300")
MOST = (300 - initial_slots.RESERVED_FILES) // initial_slots.FILES_A_SLOT


@pytest.mark.asyncio(loop_scope="module")
async def test_more_slots_than_the_open_files_allow(opened: Any) -> None:
    """It takes as many as there can be, says so, does not restart for ever, and jobs keep the limit that it was started with."""
    world = await opened(max_jobs=4096, SCHEDULER_SLOTS=UNSET, prefix=FEW_FILES)
    await world.granted(incarnations=2)
    await world.until(lambda: world.coordinator.beats[-1].free_slots == MOST)
    await world.start(world.order(1, "sh", "-c", "ulimit -Sn; ulimit -Hn"))
    assert (await world.outcome(1)).exit_code == 0
    await world.until(lambda: len(world.archiver.text(world.key(1))) == 2)
    assert world.archiver.text(world.key(1)) == [b"100", b"300"]
    assert [(one.most_slots, one.ready_slots) for one in world.coordinator.registered] == [(MOST, 16), (MOST, MOST)]


async def test_own_slots_that_the_open_files_do_not_allow_are_an_error(world: Any, tmp_path: Path) -> None:
    env = world.executor.env | {"SCHEDULER_STATE_DIR": str(tmp_path / "other"), "SCHEDULER_SLOTS": "4000"}
    command = [*FEW_FILES, sys.executable, "-m", "toban_executor"]
    done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, timeout=60)
    assert done.returncode == 78
    assert done.stderr.decode().startswith(f"SCHEDULER_SLOTS is 4000; 300 open files allow {MOST}:")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.long
async def test_slots_that_cannot_be_saved_stay_as_they_are(opened: Any, tmp_path: Path) -> None:
    (tmp_path / "state" / "max-jobs.new").mkdir(parents=True)
    world = await opened(max_jobs=18, SCHEDULER_SLOTS=UNSET)
    await world.until(lambda: world.coordinator.beats[-1].free_slots == 16)
    await world.start(world.order(1, "true"))
    assert (await world.outcome(1)).exit_code == 0
    assert len(world.coordinator.registered) == 1
    assert "cannot save max_jobs_per_worker" in world.executor.log()


@pytest.mark.asyncio(loop_scope="module")
async def test_own_slots_win_over_the_setting(opened: Any) -> None:
    world = await opened(max_jobs=9)
    assert world.coordinator.registered[0].slots == 4
    await world.until(lambda: world.coordinator.beats[-1].free_slots == 4)


# ---------------------------------------------------------------- detach


@pytest.mark.seed(91)
async def test_detach_that_lets_finish_waits_for_the_jobs_and_joins_again(world: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    await world.start(world.order(1, "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; echo done"))
    world.coordinator.state, world.coordinator.detach_mode = "detached", "let_finish"
    await world.until(lambda: "detached" in world.executor.log())
    [refused] = await world.start(world.order(2, "true"))
    assert (refused.accepted, refused.refusal) == (False, "DRAINING")
    assert len(world.coordinator.registered) == 1
    go.touch()
    assert (await world.outcome(1)).exit_code == 0
    await world.granted(incarnations=2)
    assert world.coordinator.registered[1].previous_verified_empty
    await world.start(world.order(3, "true"))
    assert (await world.outcome(3)).exit_code == 0


@pytest.mark.seed(113)
async def test_detach_that_stops_ends_the_jobs_with_their_grace_and_joins_again(world: Any, tmp_path: Path) -> None:
    word = tmp_path / "word"
    script = f"trap 'echo bye > {word}; exit 3' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    await world.start(world.order(1, "sh", "-c", script, grace_seconds=5.0))
    await world.until((tmp_path / "up").exists)
    world.coordinator.state, world.coordinator.detach_mode = "detached", "stop"
    assert (await world.outcome(1)).reason == "continuation_refused"
    assert word.read_text() == "bye\n"
    await world.granted(incarnations=2)


@pytest.mark.seed(111)
async def test_silence_that_detached_it_ends_nothing(world: Any) -> None:
    await world.start(world.order(1, "sleep", "0.8"))
    world.coordinator.state, world.coordinator.detach_mode = "detached", ""
    await world.until(lambda: "detached" in world.executor.log())
    world.coordinator.state = "on"
    assert (await world.outcome(1)).exit_code == 0
    assert len(world.coordinator.registered) == 1
