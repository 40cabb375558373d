"""The guard as real processes: starts, ends, trees, leases, output."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from toban_executor.decide.guard_types import AttemptStart, FreezeTurn, Kill, Reset, SetDeadline, SlotLost
from toban_executor.decide.models import AttemptEnd, StepOrder
from toban_executor.guard import guard_state
from toban_executor.guard.clock import boottime, pause, wall
from toban_executor.guard.process_tree import children, descendants, start_time
from toban_executor.guard.reap_previous import end_previous
from toban_fencing.executor_lease import Instant
from toban_testing.waiting import wait_for


@pytest.fixture
def guard(shared_guard: Any) -> Any:
    return shared_guard


def alive(pid: int) -> bool:
    return start_time(pid) != 0


def read_pid(file: Path) -> int:
    return int(wait_for(lambda: file.exists() and file.read_text().strip()))


class TestEnds:
    def test_exit_codes_and_signals_are_told_apart(self, guard: Any) -> None:
        assert guard.run("/bin/true").exit_code == 0
        assert guard.run("sh", "-c", "exit 143").exit_code == 143
        killed = guard.run("sh", "-c", "kill -SEGV $$")
        assert (killed.exit_code, killed.signal, killed.cause) == (None, signal.SIGSEGV, "")

    @pytest.mark.parametrize(
        ("argv", "fields", "words"),
        [
            (["no-such-program"], {}, "program 'no-such-program' not found in PATH /usr/bin:/bin"),
            (["/no/such"], {}, "program '/no/such' not found"),
            (["/etc/passwd"], {}, "is not executable (mode 0644)"),
            (["/usr"], {}, "is a directory"),
            (["/bin/true"], {"working_dir": "/no/where"}, "working directory '/no/where': No such file or directory"),
            (["/bin/echo", "a\0b"], {}, "NUL"),
        ],
    )
    def test_what_does_not_start_says_why(self, guard: Any, argv: list[str], fields: Any, words: str) -> None:
        end = guard.run(*argv, **fields)
        assert end.cause == "spawn_failed"
        assert words in end.reason
        assert (end.pid, end.exit_code, end.signal) == (0, None, None)
        assert guard.run("/bin/true").exit_code == 0

    def test_a_script_without_interpreter_line(self, guard: Any, tmp_path: Path) -> None:
        script = tmp_path / "script"
        script.write_text("echo hello\n")
        script.chmod(0o755)
        assert "no #! line" in guard.run(str(script)).reason
        script.write_text("#!/no/interpreter\n")
        assert "interpreter in its #! line" in guard.run(str(script)).reason

    def test_timeout_of_the_attempt(self, guard: Any) -> None:
        end = guard.run("sleep", "60", timeout_seconds=0.2)
        assert (end.cause, end.signal) == ("timeout", signal.SIGTERM)
        assert "timeout_seconds = 0.2" in end.reason

    def test_sigkill_follows_after_grace(self, guard: Any, at_most: Any) -> None:
        begun = boottime()
        end = guard.run(
            "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", timeout_seconds=0.6, grace_seconds=0.3
        )
        assert (end.cause, end.signal) == ("timeout", signal.SIGKILL)
        assert 0.9 <= boottime() - begun < at_most(5)

    def test_kill_order_keeps_cause_and_the_jobs_own_exit_code(self, guard: Any) -> None:
        token = guard.spawn("sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done")
        guard.receive_text(b"ready")
        guard.send(Kill(token=token, cause="cancel", reason="asked", grace=5.0))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.reason, end.exit_code) == ("cancel", "asked", 5)

    def test_steps_run_in_order_and_stop_at_the_first_failure(self, guard: Any) -> None:
        steps = [
            StepOrder(type="command", argv=("sh", "-c", f"echo {word}; exit {code}"))
            for word, code in (("one", 0), ("two", 3), ("three", 0))
        ]
        end = guard.run("-", steps=steps)
        assert (end.exit_code, end.step, end.last_seq) == (3, 1, 2)
        assert guard.text == b"one\ntwo\n"

    def test_no_step_follows_a_cancel_between_two(self, guard: Any, tmp_path: Path) -> None:
        """The first step is over, and what it left behind has its grace."""
        file, mark = tmp_path / "pid", tmp_path / "second"
        leaves = f"(trap 'echo $$ > {file}' TERM; while :; do sleep 0.02; done) & echo ready; sleep 0.2"
        argvs = (("sh", "-c", leaves), ("touch", str(mark)))
        steps = [StepOrder(type="command", argv=argv) for argv in argvs]
        token = guard.spawn("-", steps=steps, grace_seconds=30.0)
        read_pid(file)
        guard.send(Kill(token=token, cause="cancel", reason="asked", grace=0.0))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.exit_code, end.step) == ("cancel", 0, 0)
        assert not mark.exists()

    def test_timeout_of_a_step(self, guard: Any) -> None:
        steps = [StepOrder(type="command", argv=("sleep", "9"), timeout_seconds=0.1)]
        assert "step 1 ran longer than its timeout_seconds = 0.1" in guard.run("-", steps=steps).reason


class TestTrees:
    def test_what_the_main_process_leaves_behind_is_killed(self, guard: Any, tmp_path: Path) -> None:
        file = tmp_path / "pid"
        inner = f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.05; done"
        end = guard.run(
            "sh",
            "-c",
            f'setsid sh -c "{inner.replace("$", chr(92) + "$")}" & while [ ! -s {file} ]; do :; done; exit 4',
        )
        assert (end.exit_code, end.cause) == (4, "")
        assert not alive(read_pid(file))
        assert descendants(children(guard.guards.supervisor.pid)[0]) == []

    def test_double_forked_daemons_without_environment_are_found(self, guard: Any, tmp_path: Path) -> None:
        file = tmp_path / "pid"
        daemon = f"(env -i setsid sh -c 'echo $$ > {file}; exec sleep 1000' &) ; while [ ! -s {file} ]; do :; done"
        assert guard.run("sh", "-c", daemon).exit_code == 0
        assert not alive(read_pid(file))

    def test_a_daemon_that_holds_the_pipe_does_not_hang_the_run(self, guard: Any, at_most: Any) -> None:
        begun = boottime()
        end = guard.run("sh", "-c", "echo before; (trap '' TERM; exec sleep 1000) & exit 0", grace_seconds=0.3)
        assert end.exit_code == 0
        assert boottime() - begun < at_most(3)
        assert guard.text == b"before\n"

    def test_a_tree_of_many_is_killed_at_once(self, guard: Any, at_most: Any) -> None:
        script = "for i in $(seq 40); do setsid sh -c 'trap \"\" TERM; sleep 1000; :' & done; echo ready; wait"
        token = guard.spawn("sh", "-c", script)
        guard.receive(AttemptStart)
        keeper = children(guard.guards.supervisor.pid)[0]
        wait_for(lambda: len(descendants(keeper)) >= 81)
        guard.send(Kill(token=token, cause="cancel", reason="", grace=0.0))
        begun = boottime()
        assert guard.receive(AttemptEnd).signal == signal.SIGKILL
        assert boottime() - begun < at_most(1)
        assert descendants(keeper) == []

    def test_the_end_of_the_executor_kills_everything_within_a_second(
        self, own_guard: Any, tmp_path: Path, at_most: Any
    ) -> None:
        guard = own_guard
        file = tmp_path / "pid"
        guard.spawn("sh", "-c", f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {file}; sleep 1000' & wait")
        pid = read_pid(file)
        begun = boottime()
        guard.guards.close()
        wait_for(lambda: not alive(pid))
        guard.guards.supervisor.wait(timeout=60)
        assert boottime() - begun < at_most(1)
        assert [one.empty for one in guard_state.read_all(tmp_path / "guards")] == [True]
        assert end_previous(tmp_path) == {guard.incarnation: True}

    def test_a_keeper_that_dies_takes_its_job_along_and_is_replaced(self, own_guard: Any, tmp_path: Path) -> None:
        guard = own_guard
        file = tmp_path / "pid"
        guard.spawn("sh", "-c", f"setsid sh -c 'echo $$ > {file}; sleep 1000' & wait")
        pid = read_pid(file)
        os.kill(children(guard.guards.supervisor.pid)[0], signal.SIGKILL)
        guard.send(Reset(guard.receive(SlotLost).losses))
        assert not alive(pid)
        assert guard.run("/bin/true").exit_code == 0

    def test_an_order_on_its_way_to_a_keeper_that_dies_is_not_run_by_the_next(
        self, own_guard: Any, tmp_path: Path
    ) -> None:
        """The executor reports it as lost, and it may be running elsewhere."""
        guard = own_guard
        mark = tmp_path / "ran"
        for losses in (1, 2):
            keeper = wait_for(lambda: children(guard.guards.supervisor.pid))[0]
            os.kill(keeper, signal.SIGSTOP)
            guard.spawn("touch", str(mark))
            os.kill(keeper, signal.SIGKILL)
            assert guard.receive(SlotLost).losses == losses
            guard.send(Reset(losses))
        assert guard.run("/bin/true").exit_code == 0
        assert not mark.exists()

    def test_a_loss_is_told_as_soon_as_the_executor_reads(self, own_guard: Any) -> None:
        guard = own_guard
        guard.spawn("cat", "/dev/zero")
        [keeper] = children(guard.guards.supervisor.pid)
        wait_for(lambda: children(keeper))
        pause(0.3)  # By then the line is full of output that nobody takes.
        os.kill(keeper, signal.SIGKILL)
        guard.send(Reset(guard.receive(SlotLost).losses))
        assert guard.run("/bin/true").exit_code == 0

    def test_leftovers_of_killed_guards_are_ended(self, own_guard: Any, tmp_path: Path) -> None:
        guard = own_guard
        file = tmp_path / "pid"
        env = {"PATH": "/usr/bin:/bin", "TOBAN_INCARNATION": guard.incarnation}
        guard.spawn("sh", "-c", f"echo $$ > {file}; sleep 1000", env=env)
        pid = read_pid(file)
        with_cgroup = bool(guard_state.read_all(tmp_path / "guards")[0].cgroup)
        master = guard.guards.supervisor
        os.kill(master.pid, signal.SIGSTOP)
        for keeper in children(master.pid):
            os.kill(keeper, signal.SIGKILL)
        master.kill()
        master.wait()
        assert end_previous(tmp_path) == {guard.incarnation: with_cgroup}
        assert not alive(pid)


class TestLease:
    def test_the_job_is_dead_before_the_deadline(self, guard: Any) -> None:
        deadline = boottime() + 0.8
        end = guard.run("sh", "-c", "trap '' TERM; while :; do sleep 0.02; done", lease=0.8)
        assert boottime() < deadline
        assert (end.cause, end.signal) == ("lease", signal.SIGKILL)

    def test_the_lease_pipe_ends_when_the_lease_does(self, guard: Any) -> None:
        script = "trap '' TERM; cat <&$TOBAN_LEASE_FD; echo lease lost"
        end = guard.run("sh", "-c", script, lease=0.8, lease_grace=0.6)
        assert (end.cause, guard.text) == ("lease", b"lease lost\n")
        assert guard.run("sh", "-c", "timeout 0.1 cat <&3").exit_code == 124

    def test_a_renewed_lease_lets_the_job_go_on(self, guard: Any) -> None:
        token = guard.spawn("sleep", "0.8", lease=0.6)
        guard.send(SetDeadline(token=token, deadline=Instant(boottime() + 60, wall() + 60)))
        assert guard.receive(AttemptEnd).exit_code == 0

    def test_the_wall_clock_stops_a_job_and_the_other_clock_ends_it(self, guard: Any) -> None:
        deadline = boottime() + 2.0
        guard.spawn("sleep", "60", wall=wall() + 0.5, lease=2.0)
        assert guard.receive((FreezeTurn, AttemptEnd)).frozen
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.signal) == ("lease", signal.SIGKILL)
        assert boottime() < deadline

    def test_what_must_not_start(self, guard: Any) -> None:
        late = guard.run("/bin/true", lease=-0.1)
        other = guard.run("/bin/true", inc="another")
        guard.spawn("sleep", "0.3")
        busy = guard.run("/bin/true")
        assert [end.cause for end in (late, other, busy)] == ["lease", "wrong_incarnation", "slot_busy"]
        assert [end.pid for end in (late, other, busy)] == [0, 0, 0]
        assert guard.receive(AttemptEnd).exit_code == 0

    def test_an_exit_that_is_seen_after_the_deadline_is_a_lost_lease(self, guard: Any) -> None:
        """The guard was stopped meanwhile: whether the job ended in time cannot be known."""
        guard.spawn("sh", "-c", "echo on; exec sleep 0.2", lease=0.6)
        guard.receive_text(b"on\n")
        [supervisor] = children(guard.guards.supervisor.pid)
        os.kill(supervisor, signal.SIGSTOP)
        pause(0.8)
        os.kill(supervisor, signal.SIGCONT)
        assert guard.receive(AttemptEnd).cause == "lease"

    def test_a_stopped_executor_changes_nothing_for_the_guard(self, guard: Any) -> None:
        """Nobody reads and nobody renews: the guard acts by itself."""
        guard.spawn("sh", "-c", "trap '' TERM; while :; do sleep 0.02; done", lease=0.6)
        pause(0.7)
        assert descendants(children(guard.guards.supervisor.pid)[0]) == []


class TestOutput:
    def test_numbers_run_over_both_streams(self, guard: Any) -> None:
        end = guard.run("sh", "-c", "echo a; sleep 0.05; echo b >&2; sleep 0.05; printf 'c\\nd'")
        seen = [(block.stream, block.seq_from, block.text, block.partial) for block in guard.blocks]
        assert seen == [(1, 1, b"a\n", False), (2, 2, b"b\n", False), (1, 3, b"c\n", False), (1, 4, b"d", True)]
        assert (end.last_seq, end.last_line) == (4, "d")

    def test_long_lines_are_cut(self, guard: Any) -> None:
        end = guard.run("sh", "-c", "head -c 40000 /dev/zero | tr '\\0' x; echo; echo end")
        pieces = [(len(block.text), block.partial) for block in guard.blocks]
        assert sum(size for size, _ in pieces) == 40_005
        assert [size for size, partial in pieces if partial] == [16384, 16384]
        assert end.last_seq == 4

    def test_invalid_utf8_goes_through_as_it_is(self, guard: Any) -> None:
        end = guard.run("printf", "\\377\\376 raw\\n")
        assert guard.text == b"\xff\xfe raw\n"
        assert end.last_line == "\ufffd\ufffd raw"

    def test_nothing_is_sent_for_a_silent_job(self, guard: Any) -> None:
        assert guard.run("/bin/true").last_seq == 0
        assert guard.blocks == []

    def test_a_job_waits_while_the_executor_does_not_read(self, guard: Any) -> None:
        guard.spawn("sh", "-c", "seq 1 1000000; echo last", grace_seconds=30)
        pause(0.5)
        end = guard.receive(AttemptEnd, seconds=20)
        assert end.last_seq == 1_000_001
        numbers = [line for block in guard.blocks for line in block.text.split(b"\n") if line]
        assert len(numbers) == 1_000_001
        assert numbers[-2:] == [b"1000000", b"last"]
        following = 1
        for block in guard.blocks:
            assert block.seq_from == following
            following += block.lines


class TestSurroundings:
    def test_the_environment_is_exactly_what_was_ordered(self, guard: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        guard.run("env", env={"PATH": "/usr/bin:/bin", "A": "b c"})
        found = dict(line.split("=", 1) for line in guard.text.decode().splitlines())
        payload = found.pop("TOBAN_PAYLOAD_FILE")
        assert Path(found.pop("TOBAN_SOCKET")).is_socket()
        assert found == {"PATH": "/usr/bin:/bin", "A": "b c", "TOBAN_LEASE_FD": "3"}
        assert not Path(payload).exists()

    def test_a_job_sees_three_descriptors_and_the_lease(self, guard: Any) -> None:
        with socket.socket() as listening:
            os.set_inheritable(listening.fileno(), True)
            # The shell expands the star itself: no descriptor of `ls` gets into the list.
            guard.run("sh", "-c", "echo /proc/$$/fd/*; readlink /proc/$$/fd/0")
        names, stdin = guard.text.decode().splitlines()
        # The directory that the shell reads for the star has a number as well.
        assert len(names.split()) <= 5
        assert {int(name.rsplit("/", 1)[1]) for name in names.split()} >= {0, 1, 2, 3}
        assert stdin == "/dev/null"

    def test_python_sees_no_other_descriptor(self, guard: Any) -> None:
        code = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{f}')))"
        guard.run("/usr/bin/env", "python3", "-c", code, env={"PATH": os.environ["PATH"]})
        assert json.loads(guard.text) == [0, 1, 2, 3]

    def test_session_signals_and_core_limit(self, guard: Any) -> None:
        end = guard.run(
            "sh", "-c", "cut -d' ' -f6 /proc/self/stat; grep -E 'SigIgn|SigBlk' /proc/self/status; ulimit -c"
        )
        session, ignored, blocked, core = guard.text.decode().split("\n")[:4]
        assert int(session) == end.pid
        # Bits 31 and 32 are the C library's own signals.
        assert [int(line.split()[1], 16) & 0x7FFFFFFF for line in (ignored, blocked)] == [0, 0]
        assert core == "0"

    def test_payload_file_and_scratch_directory(self, guard: Any) -> None:
        script = (
            'cat "$TOBAN_PAYLOAD_FILE"; echo; stat -c %a "$TOBAN_PAYLOAD_FILE" .; pwd; touch left behind; mkdir -p a/b'
        )
        guard.run("sh", "-c", script, payload_json='{"a":1}')
        payload, mode, directory_mode, directory = guard.text.decode().splitlines()
        assert (payload, mode, directory_mode) == ('{"a":1}', "600", "700")
        guard.blocks.clear()
        guard.run("sh", "-c", "ls -A; echo empty")
        assert guard.text == b"empty\n"
        assert Path(directory).parent == guard.state / "work"


@pytest.mark.parametrize("guard_slots", [8])
def test_three_hundred_spawns_none_lost(tmp_path: Path, guard_slots: int, guard_harness: Any) -> None:
    harness = guard_harness(tmp_path, guard_slots)
    try:
        ended: list[int] = []
        busy = {slot: harness.spawn("/bin/true", slot=slot) for slot in range(guard_slots)}
        while len(ended) < 300:
            for slot in list(busy):
                end = harness.receive(AttemptEnd, slot=slot)
                assert end.exit_code == 0
                assert end.key.token == busy[slot]
                ended.append(end.key.token)
                busy[slot] = harness.spawn("/bin/true", slot=slot)
        assert len(set(ended)) == len(ended)
    finally:
        harness.close()
