"""Steps of type container in a real executor with a real engine: output, ends, freeze, what outlives its guard. Skipped without an engine."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.adapters.engine_client import LABEL, Engine, EngineError
from toban_executor.guard import cgroup
from toban_executor.guard.process_tree import descendants, has_argument, slot_of
from toban_proto.v1 import common_pb2, executor_pb2
from toban_testing.waiting import wait_for

EPOCH = (1 << 51) | (1 << 27)
SUCCEEDED, FAILED = common_pb2.OUTCOME_KIND_SUCCEEDED, common_pb2.OUTCOME_KIND_FAILED
CANCELED, TIMED_OUT = common_pb2.OUTCOME_KIND_CANCELED, common_pb2.OUTCOME_KIND_TIMED_OUT
SOCKET = os.environ.get("TOBAN_TEST_ENGINE", "/var/run/docker.sock")
IMAGE = "toban-test-shell:1"


def missing() -> str:
    """Why these tests cannot run here; empty when they can."""
    try:
        driver = Engine(SOCKET).info()["CgroupDriver"]
    except EngineError as error:
        return str(error)
    if driver != "cgroupfs":
        return f"the engine uses the cgroup driver {driver}"
    base = cgroup.find_base(f"toban-probe-{os.getpid()}")
    if base is None:
        return "this machine has no writable cgroup2 mount"
    base.rmdir()
    return ""


PROBLEM = missing()
pytestmark = [
    pytest.mark.skipif(bool(PROBLEM), reason=f"container steps need an engine: {PROBLEM}"),
]


@pytest.fixture
async def opened(world_maker: Any, image: str, tmp_path: Path) -> AsyncIterator[Any]:
    """An executor with the engine; containers may see a folder `data`, and write to `out`."""
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    world = world_maker()
    try:
        await world.open(SCHEDULER_CONTAINER_ENGINE=SOCKET, SCHEDULER_CONTAINER_MOUNTS=f"{data},{out}:rw")
        yield world
    finally:
        await world.close()
        # The engine removes what has ended a moment later.
        await world.until(lambda: not containers(world))
        assert groups(world) == []


def containers(world: Any) -> list[str]:
    """Containers of this executor."""
    ours = {one.incarnation for one in world.coordinator.registered}
    return [one for one, incarnation in Engine(SOCKET).of_label(LABEL) if incarnation in ours]


def groups(world: Any) -> list[Path]:
    """The cgroups of slots that have had a container."""
    base = cgroup.find_base(f"toban-{world.coordinator.registered[-1].incarnation}", make=False)
    assert base is not None
    return list(base.glob("*-containers"))


def shell(text: str, *, timeout_seconds: int = 0, **more: Any) -> Any:
    spec = json.dumps({"container": {"image": IMAGE, "argv": ["/bin/sh", "-c", text], **more}})
    return executor_pb2.Step(
        id="box", type="container", body_json=spec, timeout_seconds=timeout_seconds, cancelable=True
    )


async def lines(world: Any, number: int, wanted: str) -> str:
    key = (number, EPOCH | number)

    def text() -> str:
        return b"\n".join(world.archiver.text(key)).decode()

    await world.until(lambda: wanted in text())
    return text()


async def run(world: Any, number: int, step: Any, **fields: Any) -> tuple[Any, str]:
    """The outcome and the output of an attempt with this step."""
    [answer] = await world.start(world.order(number, steps=[step], **fields))
    assert answer.accepted, answer.message
    found: tuple[Any, str] = await world.ended(number)
    return found


async def test_output_variables_and_exit_code(opened: Any) -> None:
    text = 'echo out $A $B $TOBAN_RUN_ID $TOBAN_PARAM_X "$TOBAN_PAYLOAD"; echo err >&2; echo "::output {\\"rows\\": 3}::"; exit 7'
    fields = {"env": {"A": "job", "B": "job"}, "payload_json": '{"x": 1}'}
    outcome, said = await run(opened, 4, shell(text, env={"B": "own"}), **fields)
    assert outcome.exit_code == 7, said
    assert (outcome.kind, outcome.exit_code, json.loads(outcome.result_json)) == (FAILED, 7, {"rows": 3})
    assert 'out job own 4 1 {"x": 1}' in said and "err" in said


async def test_mounts_user_and_a_file_system_that_is_read_only(opened: Any, tmp_path: Path) -> None:
    (tmp_path / "data" / "a").write_text("hello")
    (tmp_path / "out").chmod(0o777)
    mounts = [
        {"source": str(tmp_path / "data"), "target": "/data"},
        {"source": str(tmp_path / "out"), "target": "/out", "read_only": False},
    ]
    text = "cat /data/a; id -u; touch /data/b; touch /b; touch /out/c && echo wrote"
    outcome, said = await run(opened, 1, shell(text, mounts=mounts, user="1234", read_only=True))
    assert outcome.kind == SUCCEEDED, said
    assert "hello" in said and "1234" in said and "wrote" in said
    assert said.count("Read-only file system") == 2
    assert (tmp_path / "out" / "c").exists()


async def test_what_cannot_start_says_why(opened: Any, tmp_path: Path) -> None:
    (tmp_path / "data" / "link").symlink_to("/etc")
    cases = [
        (shell("true", image="nothing-like-this:1"), "No such image: nothing-like-this:1"),
        (shell("true", mounts=[{"source": "/etc", "target": "/x"}]), "mount '/etc' is not allowed at all"),
        (shell("true", mounts=[{"source": f"{tmp_path}/data/link", "target": "/x"}]), "mount '/etc' is not allowed"),
        (
            shell("true", mounts=[{"source": f"{tmp_path}/data", "target": "/x", "read_only": False}]),
            "is not allowed for writing; add :rw",
        ),
        (shell("true", argv=["/no/such"]), "/no/such"),
    ]
    for number, (step, words) in enumerate(cases, start=1):
        outcome, said = await run(opened, number, step)
        assert outcome.kind == FAILED
        assert words in said, said


async def test_sigterm_reaches_the_container(opened: Any) -> None:
    await opened.start(
        opened.order(1, steps=[shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done")])
    )
    await lines(opened, 1, "up")
    await opened.cancel(1, grace=30)
    outcome = await opened.outcome(1, 30)
    assert (outcome.kind, outcome.exit_code, outcome.tree_empty) == (CANCELED, 3, True)
    await lines(opened, 1, "bye")


async def test_what_ignores_sigterm_is_killed_and_proved_gone(opened: Any) -> None:
    await opened.start(
        opened.order(1, steps=[shell("trap '' TERM; echo up; (sleep 600 &); while :; do sleep 0.1; done")])
    )
    await lines(opened, 1, "up")
    [container] = containers(opened)
    await opened.cancel(1, grace=0.5)
    outcome = await opened.outcome(1, 30)
    assert (outcome.kind, outcome.tree_empty) == (CANCELED, True)
    assert not Engine(SOCKET).pid(container)


async def test_the_timeout_of_a_step(opened: Any) -> None:
    outcome, _ = await run(opened, 1, shell("echo up; sleep 600", timeout_seconds=1))
    assert outcome.kind == TIMED_OUT


async def test_the_program_of_the_step_dies_and_the_container_with_it(opened: Any) -> None:
    """The guard, not that program, ends the container: no end is reported while it lives."""
    await opened.start(opened.order(1, steps=[shell("echo up; sleep 600")]))
    await lines(opened, 1, "up")
    [container] = containers(opened)
    runner = next(
        pid
        for pid in descendants(opened.executor.pid)
        if has_argument(pid, b"toban_executor.adapters.container_step_runner")
    )
    os.kill(runner, signal.SIGKILL)
    outcome = await opened.outcome(1, 30)
    assert (outcome.kind, outcome.signal, outcome.tree_empty) == (FAILED, signal.SIGKILL, True)
    assert not Engine(SOCKET).pid(container)


async def test_a_lost_lease_freezes_the_container_and_a_grant_lets_it_go_on(world_maker: Any, image: str) -> None:
    world = world_maker(lease_ms=2000)
    try:
        await world.open(SCHEDULER_CONTAINER_ENGINE=SOCKET)
        step = shell("i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo tick $i; sleep 0.1; done")
        await world.start(world.order(1, steps=[step], on_lease_loss="freeze"))
        await lines(world, 1, "tick 2")
        [group] = groups(world)
        await world.coordinators_down()
        await world.until(lambda: "frozen 1" in (group / "cgroup.events").read_text())
        # The kernel's proof that nothing in it runs.
        assert "populated 1" in (group / "cgroup.events").read_text()
        await world.coordinators_up()
        outcome = await world.outcome(1, 60)
        assert outcome.kind == SUCCEEDED
        assert len(world.coordinator.registered) == 1
    finally:
        await world.close()


async def test_a_lost_lease_kills_the_container_in_time(world_maker: Any, image: str) -> None:
    world = world_maker(lease_ms=2000)
    try:
        await world.open(SCHEDULER_CONTAINER_ENGINE=SOCKET)
        step = shell("trap '' TERM; echo up; while :; do sleep 0.1; done")
        await world.start(world.order(1, steps=[step], on_lease_loss="kill", lease_loss_grace_seconds=0.2))
        await lines(world, 1, "up")
        [container] = containers(world)
        await world.coordinators_down()
        await world.until(lambda: not Engine(SOCKET).pid(container))
        await world.coordinators_up()
        outcome = await world.outcome(1, 60)
        assert outcome.reason == "continuation_refused"
    finally:
        await world.close()


def guards(world: Any) -> dict[int, int]:
    """Slot to slot supervisor."""
    found = ((slot_of(pid), pid) for pid in descendants(world.executor.pid))
    return {slot: pid for slot, pid in found if slot is not None}


async def test_the_executor_freezes_the_container_of_a_guard_that_is_stopped(world_maker: Any, image: str) -> None:
    world = world_maker(lease_ms=2000)
    stopped: list[int] = []
    try:
        await world.open(SCHEDULER_CONTAINER_ENGINE=SOCKET)
        step = shell("i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo tick $i; sleep 0.1; done")
        await world.start(world.order(1, steps=[step], on_lease_loss="freeze"))
        await lines(world, 1, "tick 2")
        [group] = groups(world)
        stopped = [*guards(world).values()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        await world.coordinators_down()
        await world.until(lambda: "frozen 1" in (group / "cgroup.events").read_text())
        await world.coordinators_up()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        assert (await world.outcome(1, 60)).kind == SUCCEEDED
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        await world.close()


async def test_the_container_of_a_guard_that_dies_is_killed(opened: Any) -> None:
    await opened.start(opened.order(1, steps=[shell("echo up; sleep 600")]))
    await lines(opened, 1, "up")
    [container] = containers(opened)
    [group] = groups(opened)
    os.kill(guards(opened)[int(group.name.split("-")[1])], signal.SIGKILL)
    outcome = await opened.outcome(1, 60)
    assert outcome.reason == "lease_lost"
    assert not Engine(SOCKET).pid(container)


@pytest.fixture
def slot() -> Iterator[cgroup.SlotCgroup]:
    """The groups of a slot without a guard."""
    base = cgroup.find_base(f"toban-test-{os.getpid()}")
    assert base is not None
    made = cgroup.SlotCgroup(base=base, slot=0)
    yield made
    made.containers.kill()

    def removed() -> bool:
        cgroup.remove(base)
        return not base.exists()

    wait_for(removed)


def test_one_that_the_engine_starts_after_its_step_does_not_run_beside_the_next(
    slot: cgroup.SlotCgroup, image: str, tmp_path: Path
) -> None:
    """The program of the step was killed while the engine carried out its request."""
    engine = Engine(SOCKET)
    first = slot.containers.open("1-box")
    late = container(engine, first, tmp_path, "first")
    assert slot.containers.is_over()
    second = slot.containers.open("2-box")
    starts = threading.Thread(target=start_quietly, args=(engine, late))
    starts.start()
    wait_for(lambda: "populated 1" in (first / "cgroup.events").read_text())
    good = container(engine, second, tmp_path, "second")
    engine.start(good)
    wait_for((tmp_path / "second").exists)
    assert "frozen 1" in (first / "cgroup.events").read_text()
    slot.containers.kill()
    starts.join()
    engine.remove(late)
    engine.remove(good)
    assert not (tmp_path / "first").exists()


def container(engine: Engine, group: Path, folder: Path, name: str) -> str:
    root = cgroup.mount_root()
    assert root is not None
    host = {"CgroupParent": f"/{group.relative_to(root)}", "Binds": [f"{folder}:/out"], "NetworkMode": "none"}
    body = {"Image": IMAGE, "Cmd": ["/bin/touch", f"/out/{name}"], "HostConfig": host}
    return engine.create(f"{name}-{os.getpid()}", body)


async def test_what_a_killed_program_has_left_is_removed(opened: Any) -> None:
    """A container that was made and not started, and the group of its step."""
    outcome, _ = await run(opened, 1, shell("echo done"))
    assert outcome.kind == SUCCEEDED
    [slot] = groups(opened)
    assert [*slot.glob("*/")] == [], "an end in order leaves none"
    name = f"{EPOCH | 99}-box"
    incarnation = opened.coordinator.registered[-1].incarnation
    Engine(SOCKET).create(
        f"toban-{incarnation}-{name}", {"Image": IMAGE, "Cmd": ["/bin/sh"], "Labels": {LABEL: incarnation}}
    )
    (slot / name).mkdir()
    await opened.until(lambda: not containers(opened) and not (slot / name).exists())


def start_quietly(engine: Engine, container: str) -> None:
    with contextlib.suppress(EngineError):
        engine.start(container)


async def test_containers_die_with_their_executor(opened: Any) -> None:
    await opened.start(opened.order(1, steps=[shell("echo up; sleep 600")]))
    await lines(opened, 1, "up")
    [container] = containers(opened)
    os.kill(opened.executor.pid, signal.SIGKILL)
    await opened.until(lambda: not Engine(SOCKET).pid(container))


async def test_a_successor_ends_what_guards_have_left(opened: Any) -> None:
    """Executor and guards are killed together: the next executor ends the container before it registers."""
    await opened.start(opened.order(1, steps=[shell("echo up; sleep 600")]))
    await lines(opened, 1, "up")
    [container] = containers(opened)
    engine = Engine(SOCKET)
    stale = engine.create(
        f"stale-{os.getpid()}",
        {"Image": IMAGE, "Cmd": ["/bin/sh"], "Labels": {LABEL: opened.coordinator.registered[-1].incarnation}},
    )
    for pid in [opened.executor.pid, *descendants(opened.executor.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    opened.executor.process.wait()
    assert engine.pid(container)
    opened.executor.start()
    await opened.granted(2)
    assert not engine.pid(container)
    assert stale not in containers(opened), "one that was never started is removed"


async def test_an_executor_with_an_engine_starts_no_program(opened: Any) -> None:
    assert opened.coordinator.beats[-1].labels["toban.dev/steps"] == "container"
    [answer] = await opened.start(opened.order(1, "true"))
    assert answer.refusal == "STEP_NOT_HERE"
    assert "has the socket of a container engine, which such a job could use" in answer.message


async def test_an_executor_without_an_engine_refuses_containers(world: Any) -> None:
    [answer] = await world.start(world.order(1, steps=[shell("true")]))
    assert answer.refusal == "STEP_NOT_HERE"
    assert "no SCHEDULER_CONTAINER_ENGINE" in answer.message
