"""What a guard lets through of a job's output: limits, redaction, waiting, and the last words of a job that is killed."""

import base64
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from toban_domain.log_block import SYSTEM, LogBlock
from toban_executor.decide.guard import WAIT_REPORTED_AFTER
from toban_executor.decide.guard_types import AttemptStart, HoldOutput, Kill
from toban_executor.decide.models import AttemptEnd, LogRules
from toban_executor.guard.clock import boottime, pause
from toban_executor.guard.freezer import thread_states
from toban_executor.guard.process_tree import children
from toban_testing.waiting import wait_for

ENV = {"PATH": "/usr/bin:/bin", "TOKEN": "hunter2-hunter2"}


@pytest.fixture
def guard(shared_guard: Any) -> Any:
    return shared_guard


def flat(blocks: list[LogBlock], stream: int = 0) -> list[tuple[int, bytes]]:
    """(seq, text) of each line."""
    return [
        (block.seq_from + place, text)
        for block in blocks
        if stream in (0, block.stream)
        for place, text in enumerate([block.text] if block.partial else block.text[:-1].split(b"\n"))
    ]


def test_more_lines_than_the_rate(guard: Any) -> None:
    """The rate counts real time here: how many lines pass depends on how fast the guard reads. test_log_limits.py has the exact figures."""
    end = guard.run("seq", "100000", logs=LogRules(lines_per_second=1000))
    markers = flat(guard.blocks, SYSTEM)
    kept = [(seq, text) for seq, text in flat(guard.blocks) if (seq, text) not in markers]
    assert kept[:10_000] == [(number, b"%d" % number) for number in range(1, 10_001)]
    assert kept[-200:] == [(number, b"%d" % number) for number in range(99_801, 100_001)]
    assert all(text == b"%d" % seq for seq, text in kept)
    assert markers and all(
        text.endswith(b"more than 1,000 lines a second (max_lines_per_second)") for _, text in markers
    )
    assert (end.last_seq, end.last_line) == (100_000, "100000")
    assert end.left_out["rate"][0] == 100_000 - len(kept) >= 80_000


def test_the_marker_comes_though_the_job_says_no_more(guard: Any) -> None:
    token = guard.spawn("sh", "-c", "seq 60000; sleep 60", logs=LogRules(lines_per_second=1000))
    guard.receive_text(b"left out: more than 1,000 lines a second")
    guard.receive_text(b"60000\n")
    guard.send(Kill(token=token, cause="cancel", reason="asked", grace=0.0))
    assert guard.receive(AttemptEnd).last_seq == 60_000


def test_the_budget_keeps_beginning_and_end(guard: Any) -> None:
    end = guard.run("seq", "1000000", logs=LogRules(max_bytes=1 << 20))
    lines = flat(guard.blocks)
    seqs = [seq for seq, _ in lines]
    assert seqs == sorted(set(seqs))
    assert lines[-200:] == [(number, b"%d" % number) for number in range(999_801, 1_000_001)]
    begun, counted = flat(guard.blocks, SYSTEM)
    assert b"for the last lines: more than 1 MiB (max_mb)" in begun[1]
    left = counted[0] - begun[0] + 1
    assert counted == (999_800, f"… {left:,} lines, 5.6 MiB left out: more than 1 MiB (max_mb)".encode())
    assert (end.redacted, end.left_out) == (0, {"budget": (left, end.left_out["budget"][1])})
    assert sum(len(block.text) for block in guard.blocks) < (1 << 20) + (64 << 10) + 1000


def test_a_job_that_closes_its_output_keeps_what_it_wrote(guard: Any) -> None:
    """The guard has the pipe open too, so a line without an end comes with the end of the job."""
    guard.run("sh", "-c", "printf unfinished; exec >&-; echo later >&2")
    assert flat(guard.blocks) == [(1, b"later"), (2, b"unfinished")]


def test_values_are_masked_over_reads_pieces_and_in_what_is_said_of_the_job(guard: Any) -> None:
    script = (
        'printf hunter2; sleep 0.1; printf -- "-hunter2 end\\n"; echo "$TOKEN" >&2; '
        'printf "x%.0s" $(seq 16380); echo "$TOKEN"; printf %s "ab$TOKEN" | base64; printf %s "$TOKEN"'
    )
    end = guard.run("sh", "-c", script, env=ENV, logs=LogRules(redact=("TOKEN",)))
    assert b"hunter2" not in guard.text
    assert guard.text.startswith(b"*** end\n")
    assert base64.b64encode(b"ab" + ENV["TOKEN"].encode())[3:-4] not in guard.text
    assert (end.last_line, end.redacted) == ("***", 5)
    failed = guard.run("sh", "-c", 'echo "no $TOKEN" >&2; exit 1', env=ENV, logs=LogRules(redact=("TOKEN",)))
    assert (failed.last_line, failed.error_lines) == ("no ***", ((1, "no ***"),))


def test_why_a_job_did_not_start_is_masked(guard: Any) -> None:
    end = guard.run("/no/hunter2-hunter2/program", env=ENV, logs=LogRules(redact=("TOKEN",)))
    assert end.reason.startswith("program '/no/***/program' not found")


def test_a_value_too_short_to_mask_is_said(guard: Any) -> None:
    guard.run(
        "sh", "-c", "echo 12", payload_json='{"pin": "12", "key": "abcdef"}', logs=LogRules(redact=("pin", "key"))
    )
    assert flat(guard.blocks, SYSTEM) == [(1, b"not redacted: the value of pin has fewer than 4 bytes")]
    assert flat(guard.blocks, 1) == [(2, b"12")]


def test_the_last_words_of_a_job_that_is_killed(guard: Any, tmp_path: Path) -> None:
    """As the kernel does it when memory runs out: SIGKILL in the middle of a line."""
    file = tmp_path / "pid"
    guard.send(HoldOutput(on=True))
    guard.spawn("sh", "-c", f"echo $$ > {file}; seq 3000; echo error >&2; printf 'last words'; exec sleep 60")
    guard.receive(AttemptStart)
    pid = int(wait_for(lambda: file.exists() and file.read_text().strip()))
    wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    os.kill(pid, signal.SIGKILL)
    assert guard.receive(AttemptEnd).signal == signal.SIGKILL
    assert [text for _, text in flat(guard.blocks, 1)][-2:] == [b"3000", b"last words"]
    assert [text for _, text in flat(guard.blocks, 2)] == [b"error"]


def test_a_job_that_had_to_wait_says_so(guard: Any) -> None:
    guard.spawn("sh", "-c", "seq 100000; sleep 60")
    guard.send(HoldOutput(on=True))
    job = guard.receive(AttemptStart).pid
    wait_for(lambda: [thread_states(pid) for pid in children(job)] == [{ord("S")}])
    # A busy machine may let the guard see the hold only now.
    pause(2 * WAIT_REPORTED_AFTER)
    guard.send(HoldOutput(on=False))
    guard.receive_text(b"in its writes: the executor's journal of logs was full; nothing was left out\n")
    guard.receive_text(b"\n100000\n")
    assert [text for _, text in flat(guard.blocks, 1)] == [b"%d" % number for number in range(1, 100_001)]


def test_a_hold_without_effect_is_not_logged(guard: Any) -> None:
    token = guard.spawn("sleep", "60")
    guard.send(HoldOutput(on=True))
    guard.receive(AttemptStart)
    pause(1.1)
    guard.send(HoldOutput(on=False))
    guard.send(Kill(token=token, cause="cancel", reason="asked", grace=0.0))
    assert guard.receive(AttemptEnd).last_seq == 0


class TestHold:
    """The executor takes no output for a while: only the jobs' pipes wait."""

    def test_a_held_guard_tells_starts_and_ends_but_reads_no_output(self, guard: Any) -> None:
        guard.send(HoldOutput(on=True))
        token = guard.spawn("sh", "-c", "echo before; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done")
        guard.receive(AttemptStart)
        pause(0.1)
        assert guard.text == b""
        guard.send(Kill(token=token, cause="cancel", reason="asked", grace=0.0))
        assert guard.receive(AttemptEnd).cause == "cancel"
        # What was in the pipe when the job ended belongs to it.
        assert guard.text.startswith(b"before\n")
        assert len(guard.text) <= 1 << 17
        assert guard.run("/bin/true").exit_code == 0

    def test_go_on_reads_what_waited(self, guard: Any) -> None:
        guard.send(HoldOutput(on=True))
        guard.spawn("sh", "-c", "seq 40000; sleep 60")
        guard.receive(AttemptStart)
        guard.send(HoldOutput(on=False))
        guard.receive_text(b"40000\n")
        assert guard.text.count(b"\n") == 40000

    def test_timeout_and_lease_go_on_while_held(self, guard: Any, at_most: Any) -> None:
        guard.send(HoldOutput(on=True))
        assert guard.run("sh", "-c", "yes", timeout_seconds=0.2).cause == "timeout"
        begun = boottime()
        assert guard.run("sh", "-c", "trap '' TERM; yes", lease=1.0).cause == "lease"
        assert boottime() - begun < at_most(1.0)
