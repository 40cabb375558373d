"""Class `shared` where user namespaces are possible: the uid of the executor, and neither its processes nor its files."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_executor.adapters.isolation import abilities_here
from toban_executor.decide.isolation import SandboxLimits, SandboxPlan, missing
from toban_executor.guard.process_tree import children
from toban_testing.guard_harness import GuardHarness, sh, supervisor

pytestmark = pytest.mark.skipif(bool(missing(abilities_here(Path("/tmp")).effective)), reason="needs root")


@pytest.fixture
def shared() -> Iterator[GuardHarness]:
    folder = Path(f"/var/tmp/toban-test-{os.urandom(6).hex()}")
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "instance-secret").write_text("hush")
    plan = SandboxPlan(None, True, SandboxLimits(processes=200), hidden=(str(folder / "state"), "/no/such"))
    harness = GuardHarness(folder / "state", sandboxes=plan)
    yield harness
    harness.close()
    shutil.rmtree(folder)


def test_a_job_has_the_uid_of_the_executor_and_no_capability(shared: GuardHarness) -> None:
    status = sh(shared, "cat /proc/self/status")
    assert f"Uid:\t{os.geteuid()}\t" in status
    assert {line.split()[1] for line in status.splitlines() if line.startswith("Cap")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in status


def test_it_sees_its_folders_and_no_file_of_the_executor(shared: GuardHarness) -> None:
    text = sh(
        shared,
        f"touch left; ls -A {shared.state} {shared.state}/work; cat $TOBAN_PAYLOAD_FILE; touch {shared.state.parent}/kept",
    )
    assert "instance-secret" not in text and "guards" not in text and text.endswith("{}")
    assert (shared.state.parent / "kept").exists(), "other files of the user are there"
    assert sh(shared, "ls -A") == ""


def test_a_folder_that_a_job_has_closed_is_open_to_the_next(shared: GuardHarness) -> None:
    sh(shared, "touch left; chmod 000 . $(dirname $TOBAN_PAYLOAD_FILE)")
    assert sh(shared, "stat -c %a . $(dirname $TOBAN_PAYLOAD_FILE); ls -A") == "700\n700\n"


def test_it_reaches_no_process_outside(shared: GuardHarness) -> None:
    script = (
        f"kill -STOP {shared.guards.supervisor.pid} {supervisor(shared)} 2>&1; kill -KILL 1; ps -e --no-headers | wc -l"
    )
    lines = sh(shared, script).splitlines()
    assert [line for line in lines if "No such process" in line] != [] and int(lines[-1]) <= 5
    assert not shared.guards.supervisor.poll()


def test_a_covered_folder_is_not_uncovered_in_a_namespace_below(shared: GuardHarness) -> None:
    shared.blocks.clear()
    shared.run("unshare", "--user", "--mount", "sh", "-c", f"umount {shared.state}; cat {shared.state}/instance-secret")
    assert b"hush" not in shared.text


def test_shared_memory_and_processes_are_gone_for_the_next_run(shared: GuardHarness) -> None:
    sh(shared, "ipcmk -M 100; setsid sleep 100 >/dev/null 2>&1 &")
    assert "0x" not in sh(shared, "ipcs -m; ps -e --no-headers | grep -c sleep || true")


def test_guards_are_not_dumpable(shared: GuardHarness) -> None:
    assert sh(shared, "echo there") == "there\n"
    for pid in (shared.guards.supervisor.pid, supervisor(shared), *children(supervisor(shared))):
        assert not is_dumpable(pid)


def is_dumpable(pid: int) -> bool:
    """Asked as the kernel decides it for a process of the same user without rights: by the owner of its files."""
    if os.geteuid():
        return os.access(f"/proc/{pid}/environ", os.R_OK)
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "cat", f"/proc/{pid}/environ"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0
