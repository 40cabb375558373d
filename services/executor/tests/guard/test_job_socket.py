"""What a job says on its socket to a real guard: who is let in, what is answered, what bounds it, and what goes into its end."""

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.decide.guard_types import AttemptStart, Cancel, CheckpointStored, JobNote, Kill
from toban_executor.decide.models import AttemptEnd, StepOrder
from toban_executor.guard.job_socket import RATE

SDK = str(Path(__file__).parents[4] / "libs/sdk/src")
ENV = {"PATH": "/usr/bin:/bin", "PYTHONPATH": SDK}
SPEAK = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(os.environ['TOBAN_SOCKET'])
f = s.makefile('rwb')
def ask(line):
    f.write(line + b'\\n'); f.flush()
    return f.readline().decode().strip()
"""


def python(guard: Any, script: str, *, prefix: str = "import toban; job = toban.current_job()\n", **more: Any) -> int:
    """Start a job that runs this program."""
    token: int = guard.spawn(sys.executable, "-c", prefix + script, env={**ENV, **more.pop("env", {})}, **more)
    return token


def notes(guard: Any, kind: str, count: int = 1) -> list[JobNote]:
    """The next notes of this kind."""
    found: list[JobNote] = []
    while len(found) < count:
        note = guard.receive(JobNote)
        if note.kind == kind:
            found.append(note)
    return found


@pytest.fixture
def guard(shared_guard: Any) -> Any:
    return shared_guard


@pytest.fixture
def two(guard_harness: Any, tmp_path: Path) -> Iterator[Any]:
    """Guards with two slots."""
    harness = guard_harness(tmp_path, slots=2)
    yield harness
    harness.close()


def test_progress_goes_to_the_executor_and_output_into_the_end(guard: Any) -> None:
    python(
        guard,
        "job.progress(done=3, total=12, summary='loading', eta_seconds=60); job.output({'rows': 3}); job.log_ref('s3://b/k')",
    )
    (note,) = notes(guard, "progress")
    said = json.loads(note.text)
    assert (said["percentage"], said["summary"], said["steps"]) == (25, "loading", {"done": 3, "total": 12})
    assert said["eta"] > said["at"]
    end = guard.receive(AttemptEnd)
    assert (end.exit_code, end.result_json, end.log_ref) == (0, '{"rows":3}', "s3://b/k")


def test_what_is_sent_right_before_the_end_counts(guard: Any) -> None:
    """The job does not wait for the response: another process of its tree keeps the connection until it was looked at."""
    script = SPEAK + 'ask(b\'{"op":"heartbeat"}\'); f.write(b\'{"op":"output","value":7}\\n\'); f.flush(); os._exit(0)'
    python(guard, script, prefix="")
    assert guard.receive(AttemptEnd).result_json == "7"


def test_markers_do_the_same_for_a_shell(guard: Any) -> None:
    end = guard.run("sh", "-c", "echo '::output {\"rows\": 4}::'; echo '::log_ref s3://b/k::'; echo ' ::output 5::'")
    assert (end.result_json, end.log_ref) == ('{"rows":4}', "s3://b/k")
    assert b"::output" in guard.text


def test_secret_values_are_masked_in_output(guard: Any) -> None:
    from toban_executor.decide.models import LogRules

    python(
        guard,
        "job.output({'key': 'hunter2-hunter2'}); job.progress(1, 'with hunter2-hunter2')",
        env={"TOKEN": "hunter2-hunter2"},
        logs=LogRules(redact=("TOKEN",)),
    )
    assert json.loads(notes(guard, "progress")[0].text)["summary"] == "with ***"
    assert guard.receive(AttemptEnd).result_json == '{"key":"***"}'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"no json", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"7", "must be an object"),
        (b'{"op": "explode"}', "unknown op 'explode'; known are progress"),
        (b'{"op": "progress"}', "needs a percentage"),
        (b'{"op": "progress", "percentage": 101}', "percentage must be a number within 0 and 100"),
        (b'{"op": "progress", "done": 3, "total": 2}', "done at most total"),
        (b'{"op": "progress", "percentage": NaN}', "NaN is not JSON"),
        (b'{"op": "output"}', "needs a value"),
        (b'{"op": "output", "value": "%s"}' % (b"x" * 33_000), "the limit is 32768"),
        (b'{"op": "output", "value": "a\\u0000b"}', "NUL"),
        (b'{"op": "log_ref", "value": "a\\nb"}', "printable"),
        (b"x" * 140_000, "a request has at most 131072 bytes"),
    ],
)
def test_bad_requests_are_refused_with_the_reason(guard: Any, tmp_path: Path, line: bytes, problem: str) -> None:
    (tmp_path / "line").write_bytes(line)
    python(guard, SPEAK + f"print(ask(open({str(tmp_path / 'line')!r}, 'rb').read()))", prefix="")
    end = guard.receive(AttemptEnd)
    assert end.exit_code == 0
    answer = json.loads(guard.text)
    assert not answer["ok"]
    assert problem in answer["error"]


def test_a_job_of_another_slot_is_turned_away(two: Any) -> None:
    """It has the same user and finds the path: the guard looks at whose child it is."""
    token = python(two, "import time; print(job._path, flush=True); time.sleep(60)")
    two.receive_text(b".sock\n")
    path = two.text.decode().strip()
    script = f"""
import socket
s = socket.socket(socket.AF_UNIX); s.connect({path!r})
try:
    s.sendall(b'{{"op":"output","value":"stolen"}}\\n'); print(s.recv(100))
except OSError as error:
    print(type(error).__name__)
"""
    two.blocks.clear()
    two.spawn(sys.executable, "-c", script, slot=1)
    assert two.receive(AttemptEnd, slot=1).exit_code == 0
    assert two.text in (b"b''\n", b"ConnectionResetError\n", b"BrokenPipeError\n")
    # Nor is this test a process of the slot.
    with socket.socket(socket.AF_UNIX) as outside:
        outside.connect(path)
        outside.settimeout(10)
        assert outside.recv(100) == b""
    two.send(Kill(token=token, cause="cancel", reason="asked", grace=0.0))
    assert two.receive(AttemptEnd).result_json == ""


def test_a_flood_waits_and_the_guard_goes_on(guard: Any) -> None:
    """Requests over the rate wait in the job; the guard kills it as soon as it is asked to."""
    token = python(
        guard, SPEAK + "print('go', flush=True)\nwhile True: s.sendall(b'{\"op\":\"heartbeat\"}\\n' * 1000)", prefix=""
    )
    # The report of its start may come before that or after it.
    guard.receive_text(b"go")
    guard.send(Kill(token=token, cause="cancel", reason="asked", grace=0.0))
    assert guard.receive(AttemptEnd).cause == "cancel"


def test_one_that_reads_no_answers_loses_its_connection(guard: Any) -> None:
    """What waits for it is bounded; its other connections are served."""
    script = (
        "import time\ns.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)\n"
        'line = b\'{"op":"checkpoint"}\\n\'\n'
        "try:\n  for _ in range(2000): s.sendall(line); time.sleep(0.001)\n"
        "except OSError: pass\n"
        "import toban; toban.current_job().output('served')"
    )
    big = json.dumps("x" * 30_000)
    python(guard, SPEAK + script, prefix="", checkpoint_json=big)
    end = guard.receive(AttemptEnd, seconds=60)
    assert (end.exit_code, end.result_json) == (0, '"served"')


def test_silence_for_too_long_ends_the_job(guard: Any) -> None:
    argv = (
        sys.executable,
        "-c",
        "import toban, time\njob = toban.current_job()\njob.heartbeat()\nprint('said', flush=True)\ntime.sleep(60)",
    )
    step = StepOrder(type="command", argv=argv, heartbeat_seconds=1)
    guard.spawn(steps=(step,), env=ENV)
    end = guard.receive(AttemptEnd)
    assert (end.cause, end.reason) == ("timeout", "gave no sign of life for heartbeat_seconds = 1")


def test_signs_of_life_keep_it_alive(guard: Any) -> None:
    """Longer than its limit in all; the pauses are far below it."""
    script = "for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do echo '::heartbeat::'; sleep 0.2; done"
    end = guard.run(steps=(StepOrder(type="command", argv=("sh", "-c", script), heartbeat_seconds=2),))
    assert (end.cause, end.exit_code) == ("", 0)


def test_the_lease_is_answered_and_is_no_sign_of_life(guard: Any) -> None:
    ask = SPEAK + 'import time\nwhile True: print(ask(b\'{"op":"lease"}\'), flush=True); time.sleep(0.1)'
    steps = (StepOrder(type="command", argv=(sys.executable, "-c", ask), heartbeat_seconds=1),)
    guard.spawn("-", steps=steps, env=ENV, lease=50)
    end = guard.receive(AttemptEnd)
    assert end.cause == "timeout"
    first = json.loads(guard.text.splitlines()[0])
    assert 40 < first["lease_seconds"] <= 50
    guard.blocks.clear()
    python(guard, 'print(ask(b\'{"op":"lease"}\'))', prefix=SPEAK, on_lease_loss="continue")
    guard.receive(AttemptEnd)
    assert json.loads(guard.text)["lease_seconds"] is None


def test_a_checkpoint_is_answered_when_it_is_stored(guard: Any) -> None:
    token = python(
        guard,
        "print(job.checkpoint()); job.save_checkpoint({'at': 2}); print(job.checkpoint())",
        checkpoint_json='{"at":1}',
    )
    (note,) = notes(guard, "checkpoint")
    assert (note.text, note.number) == ('{"at":2}', 1)
    guard.send(CheckpointStored(token, 1))
    assert guard.receive(AttemptEnd).exit_code == 0
    assert guard.text == b"{'at': 1}\n{'at': 2}\n"


def test_checkpoints_of_many_go_one_after_the_other_and_the_last_one_counts(guard: Any) -> None:
    script = """
import threading
jobs = [toban.Job(job._path) for _ in range(4)]
threads = [threading.Thread(target=one.save_checkpoint, args=(number,)) for number, one in enumerate(jobs)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
"""
    token = python(guard, script)
    number = 0
    while number < 4:
        note = notes(guard, "checkpoint")[0]
        assert note.number > number
        number = note.number
        guard.send(CheckpointStored(token, number))
    assert guard.receive(AttemptEnd).exit_code == 0


def test_a_checkpoint_that_cannot_be_stored_is_refused(guard: Any) -> None:
    script = "try:\n  job.save_checkpoint(1)\nexcept toban.JobError as error:\n  print(error)"
    token = python(guard, script)
    notes(guard, "checkpoint")
    guard.send(CheckpointStored(token, 1, "the run has gone on"))
    guard.receive(AttemptEnd)
    assert guard.text == b"checkpoint: the run has gone on\n"


class TestCancel:
    def test_a_job_that_looks_ends_by_itself(self, guard: Any) -> None:
        token = python(
            guard, "print('go', flush=True)\nimport time\nwhile True: job.stop_if_cancelled(); time.sleep(0.01)"
        )
        guard.receive_text(b"go")
        guard.send(Cancel(token=token, reason="asked", grace=60.0, cooperative=True))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.reason, end.exit_code, end.signal) == ("cancel", "asked", 143, None)

    def test_one_that_waits_on_its_socket_is_told_at_once(self, guard: Any) -> None:
        script = SPEAK + 'print(ask(b\'{"op":"cancelled"}\'), flush=True); print(f.readline().decode()); sys.exit(3)'
        token = python(guard, script, prefix="")
        guard.receive_text(b'"cancelled":false')
        guard.send(Cancel(token=token, reason="asked", grace=60.0, cooperative=True))
        assert guard.receive(AttemptEnd).cause == "cancel"
        assert b'{"event":"cancel","reason":"asked"}' in guard.text

    def test_one_that_finishes_has_succeeded(self, guard: Any) -> None:
        token = python(guard, "print('go', flush=True)\nimport time\nwhile not job.cancelled(): time.sleep(0.01)")
        guard.receive_text(b"go")
        guard.send(Cancel(token=token, reason="asked", grace=60.0, cooperative=True))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.exit_code) == ("", 0)

    def test_one_that_does_not_look_gets_sigterm_after_the_grace_and_sigkill_after_another(self, guard: Any) -> None:
        token = guard.spawn("sh", "-c", "trap 'echo term' TERM; echo go; while :; do sleep 0.05; done")
        guard.receive_text(b"go")
        guard.send(Cancel(token=token, reason="asked", grace=0.3, cooperative=True))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.signal) == ("cancel", 9)
        assert b"term" in guard.text

    def test_no_step_follows(self, guard: Any) -> None:
        steps = [StepOrder(type="command", argv=("sh", "-c", f"echo {name}; sleep 0.5")) for name in ("one", "two")]
        token = guard.spawn(steps=tuple(steps))
        guard.receive_text(b"one")
        guard.send(Cancel(token=token, reason="asked", grace=60.0, cooperative=True))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.step, end.exit_code) == ("cancel", 0, 0)
        assert b"two" not in guard.text

    @pytest.mark.parametrize("cooperative", [True, False])
    def test_a_step_that_is_not_cancelable_ends_first(self, guard: Any, cooperative: bool) -> None:
        first = StepOrder(type="command", argv=("sh", "-c", "echo one; sleep 0.7; echo done"), cancelable=False)
        token = guard.spawn(steps=(first, StepOrder(type="command", argv=("echo", "two"))))
        guard.receive_text(b"one")
        guard.send(Cancel(token=token, reason="asked", grace=0.0, cooperative=cooperative))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.step, end.exit_code) == ("cancel", 0, 0)
        assert guard.text == b"one\ndone\n"

    def test_or_its_timeout_comes_first(self, guard: Any) -> None:
        first = StepOrder(type="command", argv=("sleep", "60"), cancelable=False, timeout_seconds=1)
        token = guard.spawn(steps=(first,))
        guard.receive(AttemptStart)
        guard.send(Cancel(token=token, reason="asked", grace=0.0))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.reason, end.signal) == ("cancel", "asked", 9)

    def test_an_operators_kill_waits_for_nothing(self, guard: Any) -> None:
        token = guard.spawn(steps=(StepOrder(type="command", argv=("sleep", "60"), cancelable=False),))
        guard.receive(AttemptStart)
        guard.send(Cancel(token=token, reason="asked", grace=60.0, cooperative=True))
        guard.send(Cancel(token=token, reason="now", grace=0.5, force=True))
        end = guard.receive(AttemptEnd)
        assert (end.cause, end.reason) == ("cancel", "now")


class TestSteps:
    def test_each_has_its_times_its_end_and_its_lines(self, guard: Any) -> None:
        argvs = (("sh", "-c", "echo a; echo b"), ("true",), ("sh", "-c", "echo c; exit 4"), ("echo", "never"))
        end = guard.run(steps=tuple(StepOrder(type="command", argv=argv) for argv in argvs))
        assert [(one.step, one.exit_code, one.seq_from, one.seq_to) for one in end.step_ends] == [
            (0, 0, 1, 2),
            (1, 0, 3, 2),
            (2, 4, 3, 3),
        ]
        assert all(end.started_ns <= one.started_ns <= one.finished_ns for one in end.step_ends)

    def test_the_executor_learns_which_one_runs(self, guard: Any) -> None:
        guard.spawn(steps=(StepOrder(type="command", argv=("true",)), StepOrder(type="command", argv=("true",))))
        first, second = (json.loads(note.text) for note in notes(guard, "steps", 2))
        assert ([one[0] for one in first], [one[0] for one in second]) == ([0], [0, 1])
        assert first[0][2] == second[1][2] == 0 < second[0][2]

    def test_an_attempt_begins_where_it_is_told_to(self, guard: Any) -> None:
        steps = tuple(StepOrder(type="command", argv=("echo", name)) for name in ("one", "two", "three"))
        end = guard.run(steps=steps, first_step=1)
        assert guard.text == b"two\nthree\n"
        assert [one.step for one in end.step_ends] == [1, 2]

    def test_a_job_of_one_step_has_none_of_its_own(self, guard: Any) -> None:
        assert guard.run("true").step_ends == ()


def test_what_a_closed_connection_has_sent_above_the_rate_is_served_later(guard: Any) -> None:
    """The job goes on without the connection; poll must not answer for it meanwhile."""
    count = 2 * int(RATE)
    line = '{"op":"progress","percentage":%d}\\n'
    lines = f"''.join('{line}' % (n * 100 // {count}) for n in range(1, {count + 1}))"
    script = SPEAK + f"f.write({lines}.encode()); f.flush(); f.close(); s.close(); import time; time.sleep(60)"
    token = python(guard, script, prefix="")
    said = [json.loads(note.text)["percentage"] for note in notes(guard, "progress", count)]
    assert said[-1] == 100
    guard.send(Kill(token=token, cause="cancel", reason="done", grace=0.1))
    guard.receive(AttemptEnd)
