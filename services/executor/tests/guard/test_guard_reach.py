"""No job leaves the guard's reach by changing its uid; where one has done so, the executor takes no new work."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

# Root, but without the right to signal processes of other users, and without a cgroup of version 2 (exit 77 where that cannot be had).
WITHOUT_CAP_KILL = ("setpriv", "--bounding-set=-kill")
WITHOUT_CGROUP = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'while m=$(awk \'$3=="cgroup2" {print $2; exit}\' /proc/mounts) && [ -n "$m" ]; do umount -l "$m" || exit 77; done; exec "$@"',
    "sh",
)
PREFIX = (*WITHOUT_CGROUP, *WITHOUT_CAP_KILL)


@pytest.fixture
def prefix() -> tuple[str, ...]:
    """What starts an executor that cannot signal other users' processes."""
    done = subprocess.run([*PREFIX, "true"], capture_output=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip("needs root and mount namespaces")
    return PREFIX


def no_new_privs(*prefix: str) -> str:
    """The flag of a process started after `keep_within_reach`, as /proc shows it."""
    code = (
        "import subprocess; from toban_executor.guard.process_tree import keep_within_reach; keep_within_reach();"
        "subprocess.run(['grep', 'NoNewPrivs', '/proc/self/status'])"
    )
    done = subprocess.run([*prefix, sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()[1]


def test_what_cannot_be_killed_as_another_user_gets_no_new_rights(prefix: tuple[str, ...]) -> None:
    assert no_new_privs(*prefix) == "1"
    assert no_new_privs("setpriv", "--reuid=65534", "--clear-groups") == "1"


def test_root_with_cap_kill_reaches_everything(prefix: tuple[str, ...]) -> None:
    assert no_new_privs() == "0"


@pytest.fixture
async def world(prefix: tuple[str, ...], world_maker: Any) -> Any:
    made = world_maker()
    await made.open(prefix=prefix)
    yield made
    await made.close()


async def test_jobs_have_no_new_privs(world: Any) -> None:
    await world.start(world.order(1, "grep", "NoNewPrivs", "/proc/self/status"))
    assert (await world.outcome(1, 60.0)).exit_code == 0
    text = await world.until(lambda: world.archiver.text((1, world.order(1).key.token)), 60.0)
    assert text == [b"NoNewPrivs:\t1"]


async def test_a_refused_signal_takes_the_executor_out_of_service(world: Any) -> None:
    """Its job is another user by CAP_SETUID, which no_new_privs does not take away."""
    order = world.order(
        1, "setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "echo $$; exec sleep 1000", timeout_seconds=2
    )
    await world.start(order)
    [pid] = await world.until(lambda: world.archiver.text((1, order.key.token)), 60.0)
    try:
        await world.until(lambda: world.coordinator.beats[-1].draining, 60.0)
        [refused] = await world.start(world.order(2, "true"))
        assert (refused.accepted, refused.refusal) == (False, "DRAINING")
        assert "refuse signals (EPERM)" in world.executor.log()
    finally:
        os.kill(int(pid), signal.SIGKILL)
    await world.outcome(1, 60.0)
    assert world.coordinator.beats[-1].draining, "until it is restarted"
