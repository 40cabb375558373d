"""An executor with the rights that Compose and Kubernetes give it: root with seven capabilities and no others.

So there is a uid a slot, without namespaces and without control groups.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.adapters.isolation import abilities_here
from toban_executor.adapters.state_dir import CONTROL_FILE
from toban_executor.decide.isolation import CAPABILITIES, missing
from toban_executor.guard.kernel import IPC_KINDS
from toban_executor.guard.process_tree import descendants, real_uids, start_time, with_argument
from toban_executor.guard.work_dir import payload_home
from toban_proto.v1 import common_pb2

pytestmark = [
    pytest.mark.skipif(bool(missing(abilities_here(Path("/tmp")).effective)), reason="needs root"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv"),
]
RIGHTS = (
    *("unshare", "--mount", "sh", "-c", 'umount --recursive --lazy /sys/fs/cgroup; exec "$@"', "sh"),
    "setpriv",
    f"--bounding-set=-all,{','.join(f'+{name.lower()}' for name in CAPABILITIES)}",
    "--inh-caps=-all",
    "--clear-groups",
    "--no-new-privs",
)
UIDS = range(60706, 61184)
# Neither the tree of its slot nor a variable shows such a process.
DAEMON = "setsid env -i sleep 1000 </dev/null >/dev/null 2>&1 & setsid env -i sh -c 'sleep 1000 & kill -STOP $$' & echo ready as $(id -u)"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Jobs pass through it; what is in it is not for them."""
    made = Path(tempfile.mkdtemp(prefix="toban-container-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def world(world_maker: Any, folder: Path) -> AsyncIterator[Any]:
    made = world_maker()
    made.tmp = folder
    try:
        await made.open(prefix=RIGHTS, SCHEDULER_ISOLATION="isolated", SCHEDULER_SLOTS="2")
        yield made
    finally:
        await made.close()
        # Slot supervisors may outlive the others for a moment, and write to the folder.
        for one in made.coordinator.registered:
            await made.until(lambda one=one: not with_argument(one.incarnation.encode()))


def of_uid(uid: int) -> list[int]:
    """Living processes with this real uid."""
    return [pid for pid, its in real_uids() if its == uid and start_time(pid)]


async def with_daemon(world: Any, number: int = 1) -> int:
    """A job that leaves processes behind and goes on; returns its uid."""
    order = world.order(number, "sh", "-c", f"{DAEMON}; exec sleep 1000")
    assert (await world.start(order))[0].accepted
    key = world.key(number)
    said = await world.until(lambda: b"".join(world.archiver.text(key)).partition(b"ready as ")[2])
    uid = int(said)
    # The shells have executed their programs.
    await world.until(lambda: len(of_uid(uid)) >= 4)
    return uid


async def test_the_class_is_isolated_without_namespaces(world: Any) -> None:
    [registered] = world.coordinator.registered
    assert registered.isolation == "isolated"
    assert list(registered.isolation_details) == [
        "a uid for each slot",
        "no namespaces of its own",
        "4096 processes by rlimits",
    ]


async def test_a_job_reaches_its_run_and_not_its_executor(world: Any) -> None:
    key, state = world.tls / "executor" / "tls.key", world.tmp / "state"
    # The control file has a pid and a port, which each process of a machine sees.
    kept = [file for file in (world.tmp / "state").rglob("*") if file.is_file() and file.name != CONTROL_FILE]
    assert kept
    watching = [world.executor.pid, *descendants(world.executor.pid)]
    script = f"""
    cat $TOBAN_PAYLOAD_FILE; echo; id -u; grep CapEff /proc/self/status; echo x > mine; cat mine; echo $HOME
    cat {key} {" ".join(map(str, kept))} 2>/dev/null
    ls {state} {state}/guards {state}/work {payload_home(world.coordinator.registered[0].incarnation)} 2>/dev/null
    for pid in {" ".join(map(str, watching))}; do kill -STOP $pid 2>/dev/null && echo stopped $pid; cat /proc/$pid/environ 2>/dev/null; done
    true"""
    assert (await world.start(world.order(1, "sh", "-c", script, payload_json='{"n": 1}')))[0].accepted
    outcome, text = await world.ended(1)
    assert outcome.kind == common_pb2.OUTCOME_KIND_SUCCEEDED, text
    payload, uid, capabilities, mine, home, *reached = text.splitlines()
    assert reached == []
    assert (json.loads(payload), mine, home) == ({"n": 1}, "x", "/")
    assert int(uid) in UIDS and int(capabilities.split()[1], 16) == 0


async def test_it_drains_by_the_command(world: Any) -> None:
    """Of a process that may not look at the descriptors of the executor, which is not dumpable."""
    command = [*RIGHTS, sys.executable, "-m", "toban_executor", "drain"]
    done = await asyncio.create_subprocess_exec(*command, env=world.executor.env, stderr=asyncio.subprocess.PIPE)
    text = (await done.communicate())[1].decode()
    assert (done.returncode, text.splitlines()[-1]) == (0, "drained: nothing runs here any more")
    await world.until(lambda: world.coordinator.beats[-1].draining)


async def test_it_takes_the_files_of_an_earlier_release(world: Any) -> None:
    """That ran as another user, whose folders were closed."""
    state = world.tmp / "state"
    world.executor.stop()
    for one in (state, *state.rglob("*")):
        os.chown(one, 10001, 10001)
    state.chmod(0o700)
    world.executor.start()
    await world.granted(incarnations=2)
    assert (await world.start(world.order(1, "cat", "/proc/self/status")))[0].accepted
    assert (await world.outcome(1)).kind == common_pb2.OUTCOME_KIND_SUCCEEDED


async def test_a_cancelled_job_leaves_no_process(world: Any) -> None:
    uid = await with_daemon(world)
    await world.cancel(1, grace=0)
    assert (await world.outcome(1)).kind == common_pb2.OUTCOME_KIND_CANCELED
    # That of the next run of the slot is there only with a run.
    await world.until(lambda: of_uid(uid) == [])


async def test_a_job_that_ends_leaves_no_process(world: Any) -> None:
    assert (await world.start(world.order(1, "sh", "-c", DAEMON)))[0].accepted
    outcome, text = await world.ended(1)
    assert outcome.kind == common_pb2.OUTCOME_KIND_SUCCEEDED
    assert of_uid(int(text.rpartition(" ")[2])) == []


async def test_a_job_leaves_neither_ipc_nor_files(world: Any) -> None:
    """Root without CAP_SYS_ADMIN may not remove the IPC of others."""
    name = f"toban-left-{os.urandom(6).hex()}"
    script = f"""ipcmk -M 100; ipcmk -Q; ipcmk -S 1; mkdir -m 000 /dev/shm/{name} /tmp/{name}
    for kind in shm sem msg; do grep -c $(id -u) /proc/sysvipc/$kind; done; id -u"""
    assert (await world.start(world.order(1, "sh", "-c", script)))[0].accepted
    outcome, text = await world.ended(1)
    assert outcome.kind == common_pb2.OUTCOME_KIND_SUCCEEDED, text
    *made, uid = text.split()
    assert made[-3:] == ["1", "1", "1"]
    assert left_by(uid, name) == []


async def test_what_killed_guards_leave_is_ended_by_their_executor(world: Any) -> None:
    uid = await with_daemon(world)
    kill(descendants_of_root(world.executor.pid))
    await world.granted(incarnations=2)
    assert of_uid(uid) == []


async def test_what_a_killed_executor_leaves_is_ended_by_the_next_one(world: Any) -> None:
    uid = await with_daemon(world)
    kill([world.executor.pid, *descendants_of_root(world.executor.pid)])
    world.executor.process.wait()
    assert of_uid(uid), "nothing that has ended them is left"
    world.executor.start()
    await world.granted(incarnations=2)
    assert of_uid(uid) == []


def left_by(uid: str, name: str) -> list[str]:
    """Kinds of System V IPC, and files of this name in open folders."""
    ipc = [kind for kind in IPC_KINDS if uid in Path(f"/proc/sysvipc/{kind}").read_text().split()]
    return ipc + [folder for folder in ("/dev/shm", "/tmp") if Path(folder, name).exists()]


def descendants_of_root(pid: int) -> list[int]:
    """Guards, and not what they guard."""
    below, of_root = descendants(pid), of_uid(0)
    return [one for one in below if one in of_root]


def kill(pids: list[int]) -> None:
    """All at once: none acts on the end of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
