"""Steps that fork from a zygote, by real guards (docs/jobs.md, warm steps)."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from toban_domain.secret import SecretFile
from toban_executor.decide.guard_types import Cancel, FreezeTurn, Kill, SetDeadline
from toban_executor.decide.models import AttemptEnd
from toban_executor.guard.clock import boottime, pause, wall
from toban_executor.guard.process_tree import descendants, start_time
from toban_fencing.executor_lease import Instant
from toban_testing.waiting import wait_for


def test_runs_fork_from_one_zygote(warm: Any) -> None:
    first = warm.report(env={"TOBAN_RUN": "1", "MARK": "m"})
    second = warm.report(env={"TOBAN_RUN": "2", "MARK": "m"}, payload_json='{"a": 1}')
    assert first["pid"] != second["pid"] and first["loaded_by"] == second["loaded_by"] == second["ppid"]
    assert (first["run"], second["run"], second["payload"], second["mark"]) == ("1", "2", {"a": 1}, "m")
    assert second["sid"] == second["pid"] and second["cwd"].endswith("slot-0") and second["argv"] == ["shop:report"]
    assert b"to stderr\n" in warm.guard.text
    assert warm.zygotes == [second["loaded_by"]] and descendants(warm.supervisor) == warm.zygotes


def test_ends_are_those_of_a_command(warm: Any) -> None:
    assert warm.run("leaves").exit_code == 7
    assert warm.run("fails").exit_code == 1 and b"ValueError: no" in warm.guard.text
    killed = warm.run("dies")
    assert (killed.exit_code, killed.signal, killed.cause) == (None, signal.SIGKILL, "")
    assert warm.run("stdin").exit_code == 0
    assert b"read '' [0, 1, 2, 3" in warm.guard.text
    assert len(warm.zygotes) == 1


def test_a_kill_with_grace_leaves_the_zygote(warm: Any) -> None:
    token, pid = warm.started("sleeps")
    loaded_by = warm.zygotes
    warm.guard.send(Kill(token=token, cause="cancel", reason="asked", grace=5.0))
    end = warm.guard.receive(AttemptEnd)
    assert (end.cause, end.signal, end.pid) == ("cancel", signal.SIGTERM, pid)
    assert not start_time(pid) and warm.zygotes == loaded_by


@pytest.mark.parametrize("function", ["sleeps", "ignores"])
def test_a_kill_without_grace_takes_everything(warm: Any, function: str) -> None:
    token, pid = warm.started(function)
    warm.guard.send(Kill(token=token, cause="kill", reason="asked", grace=0.0))
    end = warm.guard.receive(AttemptEnd)
    assert (end.cause, end.signal) == ("kill", signal.SIGKILL)
    assert not start_time(pid) and descendants(warm.supervisor) == []
    assert warm.report()["payload"] == {}, "with a new zygote"


def test_timeout_and_sigkill_after_grace(warm: Any) -> None:
    end = warm.run("ignores", timeout_seconds=1, grace_seconds=0.2)
    assert (end.cause, end.signal) == ("timeout", signal.SIGKILL)
    assert descendants(warm.supervisor) == []


def test_a_cooperative_cancel(warm: Any) -> None:
    token, _pid = warm.started("sleeps")
    warm.guard.send(Cancel(token=token, reason="asked", grace=0.2, cooperative=True))
    end = warm.guard.receive(AttemptEnd)
    assert (end.cause, end.signal) == ("cancel", signal.SIGTERM)


def test_the_lease_ends(warm: Any) -> None:
    warm.report()
    end = warm.run("ignores", lease=0.6)
    assert (end.cause, end.signal) == ("lease", signal.SIGKILL)
    assert descendants(warm.supervisor) == []


def test_what_the_step_leaves_behind_is_killed(warm: Any) -> None:
    end = warm.run("daemon", grace_seconds=0.2)
    assert end.exit_code == 0
    assert descendants(warm.supervisor) == [], "the zygote has had the SIGKILL as well"


def test_a_slot_supervisor_that_dies_leaves_nothing(own_warm: Any) -> None:
    warm = own_warm
    _token, pid = warm.started("sleeps")
    [zygote] = warm.zygotes
    os.kill(warm.supervisor, signal.SIGKILL)
    wait_for(lambda: not start_time(pid) and not start_time(zygote))


def test_the_executor_dies(guard_harness: Any, tmp_path: Path, folder: Path, warm_kit: Any) -> None:
    guard = guard_harness(tmp_path)
    warm = warm_kit(guard, folder)
    _token, pid = warm.started("ignores")
    [zygote] = warm.zygotes
    guard.close()
    assert guard.guards.supervisor.returncode == 0, "which attests an empty tree"
    assert not start_time(pid) and not start_time(zygote)


def test_an_idle_zygote_ends_with_its_executor(guard_harness: Any, tmp_path: Path, folder: Path, warm_kit: Any) -> None:
    guard = guard_harness(tmp_path)
    zygote = warm_kit(guard, folder).report()["loaded_by"]
    guard.close()
    assert guard.guards.supervisor.returncode == 0 and not start_time(zygote)


def test_it_is_frozen_with_its_zygote_and_goes_on(warm: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    warm.report(env={"OUT": str(out)})
    [zygote] = warm.zygotes
    token = warm.spawn("counts", env={"OUT": str(out)}, on_lease_loss="freeze", lease=1.0)
    assert warm.guard.receive(FreezeTurn).frozen
    size = out.stat().st_size
    assert size and warm.zygotes == [zygote]
    pause(0.4)
    assert out.stat().st_size == size
    warm.guard.send(SetDeadline(token=token, deadline=Instant(boottime() + 60, wall() + 60), thaw=True))
    assert not warm.guard.receive(FreezeTurn).frozen
    wait_for(lambda: out.stat().st_size > size)
    warm.guard.send(Kill(token=token, cause="cancel", reason="asked", grace=5.0))
    assert warm.guard.receive(AttemptEnd).signal == signal.SIGTERM
    assert warm.report(env={"OUT": str(out)})["loaded_by"] == zygote


# ---- with others


def test_slots_fork_side_by_side(guard_harness: Any, tmp_path: Path, folder: Path, warm_kit: Any) -> None:
    guard = guard_harness(tmp_path, 3)
    for number in range(30):
        steps = (warm_kit.step(folder, "report"),)
        guard.spawn("-", slot=number % 3, steps=steps, env={"PATH": os.environ["PATH"]})
        if number % 3 == 2:
            assert [guard.receive(AttemptEnd, slot=slot).exit_code for slot in range(3)] == [0, 0, 0]
    loaded = {json.loads(line)["loaded_by"] for line in guard.text.splitlines() if line.startswith(b"{")}
    assert len(loaded) == 3
    guard.close()


def test_a_command_beside_an_idle_zygote(warm: Any, tmp_path: Path) -> None:
    """Its tree is proved empty all the same, and its kill takes the zygote too."""
    zygote = warm.report()["loaded_by"]
    assert warm.guard.run("sh", "-c", "(setsid sleep 1000 &); exit 4", grace_seconds=0.1).exit_code == 4
    report = warm.report()
    assert start_time(report["loaded_by"]) and descendants(warm.supervisor) == [report["loaded_by"]]
    assert warm.guard.run("sh", "-c", "exit 3").exit_code == 3
    assert warm.report()["loaded_by"] == report["loaded_by"] and zygote


def test_steps_of_one_attempt_share_it(warm: Any) -> None:
    steps = tuple(warm.step(warm.folder, "report") for _ in range(3))
    end = warm.guard.run("-", steps=steps, env={"PATH": os.environ["PATH"]})
    assert (end.exit_code, end.step) == (0, 2)
    loaded = [json.loads(line)["loaded_by"] for line in warm.guard.text.splitlines() if line.startswith(b"{")]
    assert len(loaded) == 3 and len(set(loaded)) == 1


def test_secrets_reach_imports_and_forks(warm: Any) -> None:
    """The same value makes no zygote of its own for each run, a new one does: a module may hold the old one."""
    text = "import os, pathlib\nPATH = os.environ['DB_FILE']\nAT_IMPORT = pathlib.Path(PATH).read_text()[::-1]\n"
    text += "\n\ndef show():\n    there = os.path.join(os.environ['TOBAN_SECRETS_DIR'], 'db') == os.environ['DB_FILE'] == PATH\n"
    (warm.folder / "reads.py").write_text(
        text + "    print('read', there, AT_IMPORT, pathlib.Path(PATH).read_text()[::-1])\n"
    )
    loaded = []
    for value in (b"hunter22", b"hunter22", b"hunter23"):
        secrets = (SecretFile(file="db", file_env="DB_FILE", value=value),)
        steps = (warm.step(warm.folder, "show", module="reads"),)
        warm.guard.blocks.clear()
        end = warm.guard.run("-", steps=steps, env={"PATH": os.environ["PATH"]}, secrets=secrets)
        shown = value[::-1]
        assert end.exit_code == 0 and b"read True %s %s\n" % (shown, shown) in warm.guard.text, warm.guard.text
        loaded.append(set(warm.zygotes))
    assert loaded[0] == loaded[1] and len(loaded[2]) == 2, "one zygote a value"


def test_a_secret_in_the_reason_of_a_cold_start_is_masked(warm: Any) -> None:
    text = "import os, pathlib\nraise ValueError(pathlib.Path(os.environ['DB_FILE']).read_text())\n"
    (warm.folder / "says.py").write_text(text)
    secrets = (SecretFile(file="db", file_env="DB_FILE", value=b"hunter22"),)
    steps = (warm.step(warm.folder, "show", module="says"),)
    end = warm.guard.run("-", steps=steps, env={"PATH": os.environ["PATH"]}, secrets=secrets)
    assert end.exit_code == 1
    assert b"starts without its zygote: ValueError: ***" in warm.guard.text and b"hunter22" not in warm.guard.text


def test_other_jobs_cannot_reach_into_a_zygote(warm: Any) -> None:
    """Not dumpable: no process of the same user traces it, or reads its memory and descriptors. Its forks are like any job."""
    asks = "import ctypes\n\n\ndef asked(): return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n\n\nZYGOTE = asked()\n"
    (warm.folder / "own.py").write_text(asks + "\n\ndef show(): print('dumpable', ZYGOTE, asked())\n")
    steps = (warm.step(warm.folder, "show", module="own"),)
    warm.guard.run("-", steps=steps, env={"PATH": os.environ["PATH"]})
    assert b"dumpable 0 1" in warm.guard.text


def test_the_socket_of_jobs(warm: Any) -> None:
    """A fork descends from the slot, by way of its zygote."""
    talk = "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['TOBAN_SOCKET'])"
    talk += '; s.sendall(b\'{"op": "output", "value": 7}\\n\'); print(s.recv(1000).decode())'
    (warm.folder / "talks.py").write_text(f"import os, socket\n\n\ndef talk():\n    {talk}\n")
    steps = (warm.step(warm.folder, "talk", module="talks"),)
    end = warm.guard.run("-", steps=steps, env={"PATH": os.environ["PATH"]})
    assert (end.exit_code, end.result_json) == (0, "7"), warm.guard.text
