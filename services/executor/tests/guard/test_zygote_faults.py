"""What imported modules leave in a zygote, and supervisors that come late: no failed step succeeds, none runs twice, nothing runs on."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_domain.outcome import OutcomeKind
from toban_executor.decide.guard_types import AttemptStart, FreezeTurn, SetDeadline
from toban_executor.decide.models import AttemptEnd
from toban_executor.decide.outcome import outcome_of
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard import zygotes
from toban_executor.guard.clock import boottime, pause, wall
from toban_executor.guard.process_tree import children, descendants
from toban_executor.guard.spawn import SpawnError
from toban_executor.guard.zygotes import ANSWER_SECONDS, Forked, ForkEnded, WarmStart, Zygotes
from toban_fencing.executor_lease import Instant
from toban_proto.v1 import executor_pb2
from toban_testing.waiting import wait_for

REAPS = "import os, signal\nsignal.signal(signal.SIGCHLD, lambda *_: os.waitpid(-1, 0))\n"
IGNORES = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"


@pytest.mark.parametrize("module", [REAPS, IGNORES])
def test_a_module_that_takes_the_ends_of_children(warm: Any, module: str) -> None:
    (warm.folder / "bad.py").write_text(module)
    for _ in range(2):
        end = warm.run("leaves", preload="bad")
        assert (end.exit_code, end.signal, end.cause) == (7, None, "")
    assert len(warm.zygotes) == 1


def test_a_fork_has_the_handler_of_its_modules(warm: Any) -> None:
    (warm.folder / "bad.py").write_text(
        f"{IGNORES}\n\ndef show(): print('ignores', signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)\n"
    )
    steps = (warm.step(warm.folder, "show", module="bad"),)
    warm.guard.run("-", steps=steps, env={"PATH": os.environ["PATH"]})
    assert b"ignores True\n" in warm.guard.text


def test_an_end_that_is_not_known_is_no_success(warm: Any) -> None:
    """The module takes the end of the fork after the zygote has made its own arrangements."""
    text = f"def set_it():\n    {IGNORES.splitlines()[1]}\n\n\nos.register_at_fork(after_in_parent=set_it)\n"
    (warm.folder / "bad.py").write_text("import os, signal\n" + text)
    end = warm.run("leaves", preload="bad")
    assert (end.exit_code, end.signal, outcome_of(end).kind) == (None, signal.SIGKILL, OutcomeKind.FAILED)
    assert b"the only record of its exit code: the step counts as killed" in warm.guard.text


def test_a_temporary_folder_of_imports_stays_for_every_fork(warm: Any) -> None:
    text = """import atexit, os, tempfile
folder, ended = tempfile.TemporaryDirectory(), []


def use():
    own = tempfile.TemporaryDirectory()
    atexit.register(lambda: print("own is left", os.path.exists(own.name)))
    print("shared", os.path.isdir(folder.name), "own", os.path.isdir(own.name))
"""
    (warm.folder / "temp.py").write_text(text)
    for _ in range(2):
        warm.guard.blocks.clear()
        steps = (warm.step(warm.folder, "use", module="temp"),)
        assert warm.guard.run("-", steps=steps, env={"PATH": os.environ["PATH"]}).exit_code == 0
        assert b"shared True own True\n" in warm.guard.text
    assert len(warm.zygotes) == 1


def test_output_of_imports_is_in_no_run(warm: Any) -> None:
    text = "import sys\nprint('::output 5::')\nprint('imported')\nsys.stdout.write('no newline')\n"
    (warm.folder / "says.py").write_text(text)
    for _ in range(2):
        end = warm.run("report", preload="says")
        assert (end.exit_code, end.result_json) == (0, "")
        assert b"imported" not in warm.guard.text and b"no newline" not in warm.guard.text


def test_code_that_is_deployed_while_it_is_imported(warm: Any, tmp_path: Path) -> None:
    """The module was read before, and its file was looked at after the change."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    text = f"import os, time, shop\nopen({str(begun)!r}, 'w').close()\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    (warm.folder / "slow.py").write_text(text)
    warm.guard.blocks.clear()
    warm.spawn("report", preload="slow")
    wait_for(begun.exists)
    shop = warm.folder / "shop.py"
    shop.write_text(shop.read_text().replace('"cwd":', '"new": 1, "cwd":'))
    go.touch()
    assert warm.guard.receive(AttemptEnd).exit_code == 0
    assert b'"new": 1' in warm.guard.text
    assert b"without its zygote" not in warm.guard.text, "a new one"


def test_the_start_of_a_step_names_its_process_and_not_its_zygote(warm: Any, tmp_path: Path) -> None:
    """While the zygote imports, there is none."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    text = f"import os, time, shop\nopen({str(begun)!r}, 'w').close()\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    (warm.folder / "slow.py").write_text(text)
    warm.spawn("sleeps", preload="slow")
    wait_for(begun.exists)
    pause(0.3)
    go.touch()
    start = warm.guard.receive(AttemptStart)
    [zygote] = warm.zygotes
    assert start.pid == children(zygote)[0]


def test_threads_that_a_fork_starts_in_its_zygote(warm: Any) -> None:
    """They would run on between attempts."""
    text = "import os, threading, time\n\n\ndef thread(): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    (warm.folder / "threads.py").write_text(text + "\n\nos.register_at_fork(after_in_parent=thread)\n")
    for _ in range(2):
        end = warm.run("leaves", preload="threads")
        assert (end.exit_code, end.cause) == (7, "")
        assert descendants(warm.supervisor) == []


def test_a_zygote_that_was_killed_is_gone_before_its_attempt_has_ended(warm: Any) -> None:
    """It has much to give back; the next attempt neither asks it nor starts cold."""
    (warm.folder / "large.py").write_text("DATA = bytearray(b'x') * (300 << 20)\n")
    for _ in range(2):
        assert warm.run("daemon", preload="large", grace_seconds=0.1).exit_code == 0
        assert descendants(warm.supervisor) == []
    assert b"without its zygote" not in warm.guard.text


# ---- limits and sizes


@pytest.fixture
def limited_warm(guard_harness: Any, tmp_path: Path, folder: Path, warm_kit: Any) -> Iterator[Any]:
    made = warm_kit(guard_harness(tmp_path, 1, WarmLimits(zygotes=4)), folder)
    yield made
    made.guard.close()


def test_a_slot_keeps_as_many_zygotes_as_it_may(limited_warm: Any) -> None:
    loaded = [limited_warm.report(env={"MARK": mark})["loaded_by"] for mark in "abcdabcd"]
    assert loaded[:4] == loaded[4:] and len(set(loaded)) == 4


# ---- a supervisor that comes late


class Late:
    """Zygotes of this process, which reads what they say when the test wants it."""

    def __init__(self, folder: Path, kit: Any) -> None:
        self.poll = select.poll()
        self.zygotes = Zygotes(limits=WarmLimits(), poll=self.poll, send=lambda _note: None)
        self.out = os.open(folder / "out", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        (folder / "payload").write_text("{}")
        env = {"PATH": os.environ["PATH"], "TOBAN_PAYLOAD_FILE": str(folder / "payload")}
        fds = (self.null, self.out, self.out, self.null)
        self.begin = lambda **more: self.zygotes.begin(
            WarmStart(kit.step(folder, "report"), {**env, **more}, (), "", str(folder), fds)
        )
        self.pid = self.begin()

    def readable(self) -> int:
        """The socket, once something waits in it."""
        [(fd, _event)] = self.poll.poll(20_000)
        return int(fd)

    def ready(self) -> None:
        assert self.zygotes.read(self.readable()) is None

    def close(self) -> None:
        self.zygotes.close()
        os.close(self.out)
        os.close(self.null)


@pytest.fixture
def late(folder: Path, warm_kit: Any) -> Iterator[Late]:
    made = Late(folder, warm_kit)
    made.ready()
    yield made
    made.close()


def test_an_answer_that_waits_is_read_before_its_zygote_counts_as_silent(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = late.readable()
    monkeypatch.setattr(zygotes, "boottime", lambda: boottime() + ANSWER_SECONDS + 1)
    late.zygotes.check()
    assert isinstance(late.zygotes.read(fd), Forked)


def test_an_answer_counts_after_the_kill(late: Late) -> None:
    late.readable()
    late.zygotes.kill()
    assert not late.zygotes.alone(), "it is not reaped"
    os.waitpid(late.pid, 0)
    reaped = late.zygotes.reaped(late.pid)
    assert reaped is not None and isinstance(reaped[0][0], Forked)


def test_what_a_zygote_does_not_take_starts_cold(late: Late) -> None:
    assert isinstance(late.zygotes.read(late.readable()), Forked)
    assert isinstance(late.zygotes.read(late.readable()), ForkEnded)
    with pytest.raises(SpawnError, match="too large for a zygote: 600"):
        late.begin(TOBAN_PARAM_X="x" * 600_000)
    late.begin(TOBAN_PARAM_X="ü" * 200_000, TOBAN_PARAM_Y="\udcff")
    assert isinstance(late.zygotes.read(late.readable()), Forked)


# ---- frozen in the hand-over


def frozen_before_its_fork(warm: Any) -> tuple[int, int]:
    """Token and zygote of a step whose lease has ended before its zygote has forked."""
    [zygote] = {warm.report()["loaded_by"]}
    os.kill(zygote, signal.SIGSTOP)
    warm.guard.blocks.clear()
    token = warm.spawn("report", on_lease_loss="freeze", lease=0.5)
    assert warm.guard.receive(FreezeTurn).frozen
    return token, zygote


def go_on(warm: Any, token: int) -> AttemptEnd:
    warm.guard.send(SetDeadline(token=token, deadline=Instant(boottime() + 60, wall() + 60), thaw=True))
    end = warm.guard.receive(AttemptEnd)
    assert isinstance(end, AttemptEnd)
    return end


def test_a_freeze_takes_no_time_from_a_zygote(warm: Any) -> None:
    token, zygote = frozen_before_its_fork(warm)
    pause(ANSWER_SECONDS + 0.5)
    assert warm.zygotes == [zygote]
    os.kill(zygote, signal.SIGCONT)
    end = go_on(warm, token)
    assert (end.exit_code, end.cause) == (0, ""), warm.guard.text


def test_a_zygote_that_ends_while_its_step_is_frozen(warm: Any) -> None:
    token, zygote = frozen_before_its_fork(warm)
    os.kill(zygote, signal.SIGKILL)
    wait_for(lambda: descendants(warm.supervisor) == [])
    end = go_on(warm, token)
    assert (end.exit_code, end.cause) == (0, ""), warm.guard.text
    assert b"without its zygote: it has ended" in warm.guard.text


# ---- what /proc does not show

HIDDEN = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'while m=$(awk \'$3=="cgroup2" {print $2; exit}\' /proc/mounts) && [ -n "$m" ]; do umount -l "$m" || exit 77; done; '
    'mount -t proc -o hidepid=2,gid=65534 proc /proc || exit 77; exec setpriv --bounding-set=-sys_ptrace "$@"',
    "sh",
)


@pytest.fixture
def hidden() -> tuple[str, ...]:
    """Root without the right to look at processes that are not dumpable, and without cgroups of version 2."""
    done = subprocess.run([*HIDDEN, "true"], capture_output=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip("needs root and mount namespaces")
    return HIDDEN


def two_lines(lines: list[bytes]) -> list[bytes]:
    return lines if len(lines) >= 2 else []


async def test_where_zygotes_are_hidden_steps_start_cold(
    hidden: tuple[str, ...], world_maker: Callable[..., Any], folder: Path
) -> None:
    world = world_maker()
    await world.open(prefix=hidden)
    try:
        for number in (1, 2):
            body = {"callable": "shop:report", "python_path": [str(folder)], "warm": True}
            step = executor_pb2.Step(type="python", body_json=json.dumps(body), cancelable=True)
            await world.start(world.order(number, steps=[step]))
            assert (await world.outcome(number, 60.0)).exit_code == 0
            key = (number, world.order(number).key.token)
            # The note of the start and the line of the job may come in two parts.
            lines = await world.until(lambda key=key: two_lines(world.archiver.text(key)), 60.0)
            assert any(
                b"starts without its zygote: /proc does not show its processes (hidepid)" in line for line in lines
            )
            report = json.loads(next(line for line in lines if line.startswith(b"{")))
            assert report["loaded_by"] == report["pid"]
    finally:
        await world.close()


def test_a_process_that_is_not_shown_counts_as_running(hidden: tuple[str, ...]) -> None:
    code = (
        "import ctypes, os, subprocess, sys; from toban_executor.guard.freezer import thread_states;"
        "hide = 'import ctypes, sys; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print(flush=True); sys.stdin.read()';"
        "child = subprocess.Popen([sys.executable, '-c', hide], stdin=subprocess.PIPE, stdout=subprocess.PIPE);"
        "child.stdout.readline(); print(os.path.exists(f'/proc/{child.pid}'), thread_states(child.pid));"
        "child.communicate(); print(thread_states(child.pid))"
    )
    done = subprocess.run([*hidden, sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["False {63}", "set()"]
