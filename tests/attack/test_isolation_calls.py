"""Jobs of class `isolated` that look for a key, make calls without one, and try each port of the stack on the loopback that they share with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.guard.process_tree import descendants
from toban_proto.v1 import coordinator_pb2 as pb
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.hostile_jobs import forged_calls
from toban_testing.listening import listening_ports

Hostile = Callable[..., int]


@pytest.fixture
def live(isolated: AdminClient) -> Iterator[pb.Run]:
    """A run that has printed a line and goes on."""
    spec = {"steps": [{"argv": ["sh", "-c", "echo genuine; exec sleep 600"]}], "allow_shell": True}
    isolated.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "victim"}, "spec": spec})
    [run_id] = isolated.start("victim")
    isolated.until(lambda: isolated.log(run_id) == ["genuine"], of="its line is stored")
    yield isolated.run(run_id)
    isolated.cancel(run_id, mode="kill")
    assert isolated.until_ended(run_id).state == "CANCELED", "no other process has ended it"
    assert isolated.log(run_id) == ["genuine"]


def test_a_job_finds_no_key(isolated_stack: Stack, hostile: Hostile) -> None:
    """In files, variables and descriptors: in the folders of the stack, in what is called private, and in all of /proc and /run."""
    roots = [str(isolated_stack.home.root), "/tmp", "/var/tmp", "/dev/shm", "/run", "/proc/1", "/proc/self"]
    hostile("keys", {"roots": roots})


def test_a_job_registers_reports_and_appends_nothing(
    isolated: AdminClient, isolated_stack: Stack, hostile: Hostile, live: pb.Run, tmp_path: Path
) -> None:
    before = {one.worker_id: one.incarnation for one in isolated.cluster().executors}
    hostile("forged", forged_calls(isolated_stack, isolated, [live], tmp_path / "own"))
    after = {one.worker_id: one.incarnation for one in isolated.cluster().executors}
    assert after == before, "nothing has registered"


def test_each_listener_of_the_stack_asks_a_job_for_a_credential(
    attacks: Any, isolated_stack: Stack, hostile: Hostile
) -> None:
    processes = isolated_stack.processes()
    address = {name.removesuffix("-1"): one.address for name, one in processes.items()}
    admin = sorted(one.admin for one in processes.values() if one.admin)
    known = {one.address for one in processes.values()} | set(admin)
    for name, one in processes.items():
        if name == "s3":
            # The ports of the parts of the object store are those of test_open_ports.py.
            continue
        found = {port for pid in (one.pid, *descendants(one.pid)) for port in listening_ports(pid)}
        unknown = {port for port in found if f"127.0.0.1:{port}" not in known}
        attacks.expect(f"another port of {name}", refused=not unknown, instead=unknown)
    ours = {pid for one in processes.values() for pid in (one.pid, *descendants(one.pid))}
    hostile(
        "ports",
        {
            "admin": admin,
            "site": address["admin-web"],
            "s3": address["s3"],
            "redis": address["redis"],
            "postgres": address["postgres"],
            "inodes": sorted(inode for pid in ours for inode in sockets_of(pid)),
            "grpc": [address[role] for role in ("coordinator", "executor", "log-archiver")],
        },
    )


def sockets_of(pid: int) -> Iterator[int]:
    for one in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(one.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])
