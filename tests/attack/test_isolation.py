"""Jobs of class `isolated` against executors, guards and other runs: processes, memory, files, rights, and processes that outlive their run."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.process_tree import children, descendants, start_time
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.people import CONTEXT_FILE
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.job_escapes import DAEMONS, ENDS, gone, marked, run

Hostile = Callable[..., int]
_LIBC = ctypes.CDLL(None, use_errno=True)
_HERE = -100


def executors(stack: Stack) -> list[int]:
    return [one.pid for one in stack.processes().values() if one.role == "executor"]


def all_of_executors(stack: Stack) -> list[int]:
    """Executors, guard supervisors, slot supervisors, sandboxes, and what runs in them."""
    return [pid for one in executors(stack) for pid in (one, *descendants(one))]


def state_of(pid: int) -> dict[str, Any]:
    """What an attacker would change."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "started": start_time(pid),
        "stopped": status["State"][0] in "TtZX",
        "traced by": status["TracerPid"].strip(),
        "nice": os.getpriority(os.PRIO_PROCESS, pid),
        "cpus": os.sched_getaffinity(pid),
        "limits": Path(f"/proc/{pid}/limits").read_text(),
        "oom": Path(f"/proc/{pid}/oom_score_adj").read_text(),
    }


@pytest.fixture
def neighbours(isolated: AdminClient, isolated_stack: Stack, mark: str) -> Iterator[list[int]]:
    """The processes of runs of another job, on each executor, so that the attacker has one beside it."""
    script = "cat $TOBAN_PAYLOAD_FILE > /tmp/scratch; echo printed; while :; do sleep 1; done"
    secret = pb.SetSecretRequest(name="hush", value=b"hush", jobs=["escape"])
    isolated.call(rpc.OperationsStub, "SetSecret", secret)
    runs: list[int] = []
    used: set[int] = set()
    while len(used) < len(executors(isolated_stack)):
        runs.append(run(isolated, ["sh", "-c", script, "@"], mark, secrets=[{"name": "hush"}]))
        isolated.until(lambda: isolated.log(runs[-1]) == ["printed"], of="the victim runs")
        used.add(isolated.run(runs[-1]).worker_id)
        assert len(runs) < 6, "one executor gets all runs"
    pids = marked(mark)
    yield [pid for one in executors(isolated_stack) for pid in descendants(one) if pid in pids]
    for one in runs:
        assert isolated.run(one).state == "RUNNING", "no other process has ended it"
        isolated.cancel(one, mode="kill")
    for one in runs:
        assert isolated.until_ended(one).state == "CANCELED"


def test_a_job_stops_kills_traces_and_slows_no_other_process(
    attacks: Any, isolated_stack: Stack, hostile: Hostile, neighbours: list[int]
) -> None:
    supervisors = [child for one in executors(isolated_stack) for child in children(one)]
    victims = {*executors(isolated_stack), *supervisors, *(slot for one in supervisors for slot in children(one))}
    victims |= {*neighbours}
    before = {pid: state_of(pid) for pid in victims}
    sandboxes = {pid: start_time(pid) for pid in all_of_executors(isolated_stack) if pid not in victims}
    uid = hostile("signals", {"pids": sorted({*victims, *all_of_executors(isolated_stack)})})
    for pid, expected in before.items():
        found = state_of(pid) if start_time(pid) else {}
        attacks.expect(f"a change of {pid}", refused=found == expected, instead=found)
    for pid in all_of_executors(isolated_stack):
        if pid not in victims:
            state = state_of(pid)
            fine = not state["stopped"] and state["traced by"] == "0"
            attacks.expect(f"stop of {pid}", refused=fine, instead=state)
    lived = [pid for pid in sandboxes if start_time(pid) == sandboxes[pid]]
    attacks.expect("the end of a sandbox", refused=bool(lived), instead=uid)


def test_a_job_reads_no_memory_and_no_environment(
    isolated_stack: Stack, hostile: Hostile, neighbours: list[int]
) -> None:
    others = [one.pid for one in isolated_stack.processes().values()]
    hostile("memory", {"pids": sorted({*others, *neighbours, *all_of_executors(isolated_stack)})})


def private_paths(stack: Stack) -> list[str]:
    """Keys, credentials, journals, records of guards, work folders, and what each of these folders has."""
    home = stack.home
    (home.root / CONTEXT_FILE).touch(mode=0o600)
    closed = [
        *home.tls.glob("*/tls.key"),
        home.tls / "ca" / "ca.key",
        *home.secrets.iterdir(),
        *home.logs.iterdir(),
        home.secrets,
        home.logs,
        home.root / CONTEXT_FILE,
    ]
    for state in home.data.glob("executor-*"):
        closed += [state, *(path for path in state.rglob("*") if not path.is_socket())]
    for other in ("postgres", "redis", "s3"):
        closed += [home.data / other, *list((home.data / other).iterdir())[:5]]
    names = {path.name for path in closed}
    assert names >= {"tls.key", "ca.key", "journal.sqlite3", "instance-secret", "serving.json", "guards", "work"}
    assert names >= {"admin-token", "secrets-key", "redis.conf", "postgres-password", "s3-secret-key", CONTEXT_FILE}
    return [str(path) for path in closed]


def rooms_of_slots(stack: Stack) -> list[Path]:
    """The folders in memory with payload, secrets and socket of each slot."""
    incarnations = [path.stem for path in stack.home.data.glob("executor-*/guards/*.json")]
    found = [path for one in incarnations for path in Path(f"/dev/shm/toban-{one}").rglob("*")]
    assert {"job.sock", "payload.json", "payload.secrets", "hush"} <= {path.name for path in found}
    return found


def test_a_job_reads_and_changes_no_file_of_others(
    isolated: AdminClient, isolated_stack: Stack, hostile: Hostile, neighbours: list[int]
) -> None:
    rooms = rooms_of_slots(isolated_stack)
    # What a run has in its folders, by the ways on which a process of the machine reaches it.
    through = [
        str(Path(f"/proc/{pid}/root", name))
        for pid in neighbours
        for name in ("tmp/scratch", "dev/shm/payload.json", "dev/shm/payload.secrets")
    ]
    assert any(Path(path).exists() for path in through)
    paths = [*private_paths(isolated_stack), *map(str, rooms), *through, "/etc/shadow"]
    sockets = [str(path) for path in (*rooms, *isolated_stack.home.run.iterdir()) if path.is_socket()]
    sockets += [str(isolated_stack.home.supervisor_socket), *map(str, Path("/tmp").glob("seaweedfs-*.sock"))]
    hostile("files", {"paths": paths, "sockets": sockets})


@pytest.fixture
def knowledge(isolated_stack: Stack) -> dict[str, Any]:
    """Programs with rights, the handle of a file, and what else the machine could have left for an attacker."""
    public = isolated_stack.home.root.parent / "programs"
    public.mkdir(mode=0o755, exist_ok=True)
    setuid, capable = public / "id", public / "cat"
    for name, copy in (("id", setuid), ("cat", capable)):
        source = shutil.which(name)
        assert source
        shutil.copy(source, copy)
    setuid.chmod(0o4755)
    capable.chmod(0o755)
    # Version 2, effective, with DAC_OVERRIDE and DAC_READ_SEARCH.
    os.setxattr(capable, "security.capability", struct.pack("<5I", 0x02000001, 0x6, 0, 0, 0))
    secret = isolated_stack.home.tls / "executor" / "tls.key"
    return {
        "uids": [uid for pid in all_of_executors(isolated_stack) if (uid := uid_of(pid))] + [61183],
        "setuid_id": str(setuid),
        "capable_cat": str(capable),
        "secret": str(secret),
        "handle": handle_of(secret).hex(),
        "groups": groups_with(all_of_executors(isolated_stack)),
        "paths": private_paths(isolated_stack),
        "pids": executors(isolated_stack),
    }


def groups_with(pids: list[int]) -> list[str]:
    """The control groups of these processes, of either version, and those above all."""
    roots = [*Path("/sys/fs/cgroup").glob("cgroup.procs"), *Path("/sys/fs/cgroup").glob("*/cgroup.procs")]
    own = [path for path in Path("/sys/fs/cgroup").rglob("cgroup.procs") if {*map(str, pids)} & {*lines_of(path)}]
    assert roots and own
    return sorted({*map(str, roots), *map(str, own)})


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def uid_of(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:")]
    return int(line.split()[1])


def handle_of(path: Path) -> bytes:
    """The number of a file on its disk, by which a process with the right may open it."""
    buffer = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136)
    mount = ctypes.c_int()
    if _LIBC.name_to_handle_at(_HERE, os.fsencode(path), buffer, ctypes.byref(mount), 0):
        return bytes(16)
    [size] = struct.unpack("=I", buffer.raw[:4])
    return buffer.raw[: 8 + size]


def test_a_job_gains_no_right(hostile: Hostile, knowledge: dict[str, Any]) -> None:
    hostile("rights", knowledge)


def test_root_of_an_own_namespace_gains_nothing(hostile: Hostile, knowledge: dict[str, Any]) -> None:
    hostile("own_namespace", knowledge)


def test_these_programs_would_give_rights_elsewhere(knowledge: dict[str, Any]) -> None:
    """The programs do what they are for in a process that is not isolated; else the test before shows nothing."""
    assert Path(knowledge["setuid_id"]).stat().st_mode & 0o4000
    assert os.getxattr(knowledge["capable_cat"], "security.capability")


@pytest.mark.parametrize("kind", DAEMONS)
def test_no_process_outlives_its_run_in_class_isolated(
    attacks: Any, isolated: AdminClient, mark: str, kind: str
) -> None:
    run_id = run(isolated, DAEMONS[kind], mark)
    isolated.until_ended(run_id)
    attacks.expect(kind, refused=gone(isolated, mark), instead=marked(mark))


@pytest.mark.parametrize("kind", ENDS)
def test_who_attacks_its_guard_is_ended_in_class_isolated(
    attacks: Any, isolated: AdminClient, mark: str, kind: str
) -> None:
    """Its parent is the sandbox, which a job does not kill: it goes on until its timeout."""
    run_id = run(isolated, ENDS[kind], mark, timeout_seconds=3)
    ended = isolated.until_ended(run_id, seconds=120)
    fine = gone(isolated, mark) and ended.state != "SUCCEEDED"
    attacks.expect(kind, refused=fine, instead=(ended.state, marked(mark)))
    again = run(isolated, ["true"], mark)
    assert isolated.until_ended(again, seconds=120).state == "SUCCEEDED", "the executor works on"
