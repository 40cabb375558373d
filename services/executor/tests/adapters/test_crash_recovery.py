"""Undelivered messages of guards are recovered once: not what the journal has, not twice, and not by half."""

import asyncio
import base64
import json
import os
import signal
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard

from toban_domain.log_block import STDERR, STDOUT, LogBlock
from toban_domain.outcome import AttemptKey, OutcomeKind
from toban_executor.adapters import crash_recovery as module
from toban_executor.adapters.crash_recovery import recover_messages
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import Packer
from toban_executor.guard import message_spool
from toban_executor.guard.message_spool import SpooledMessage
from toban_executor.guard.protocol import encode_block
from toban_executor.ports.journal import JournalBatch
from toban_executor.ports.logs import Chunk, Seal
from toban_proto.v1 import common_pb2, logs_pb2
from toban_testing.fake_coordinator import EPOCH

TICKET = common_pb2.LogTicket(body=b"body", signature=b"signature").SerializeToString()
# Those of stepping_executor, in order.
STEPS = ("told", "writing", "written", "reporting", "answered")
# The outcome is in the journal of the one, and in the file of a guard of the other.
IN_GATE = ("writing", "reporting")
SUCCEEDED = common_pb2.OUTCOME_KIND_SUCCEEDED


def line(seq: int, stream: int = STDOUT) -> bytes:
    text = b"line %d\n" % seq
    return encode_block(LogBlock(stream=stream, partial=False, at_ns=1000 + seq, seq_from=seq, lines=1, text=text))


def end(run: int, *, last_seq: int, cause: str = "", exit_code: int | None = 0) -> bytes:
    fields = {"cause": cause, "reason": cause, "exit": exit_code, "signal": None, "step": 0, "steps": 1, "pid": 9}
    told = {"started_ns": 10**18, "finished_ns": 10**18 + 10**9, "last_seq": last_seq, "last_line": ""}
    logs = {"redacted": 0, "left": {}}
    # As earlier releases wrote it.
    return b"J" + json.dumps({"t": "end", "run": run, "token": 100 + run, **fields, **told, "logs": logs}).encode()


def leave(folder: Path, *messages: bytes, first: int = 1, name: str = "inc.0") -> Path:
    file = folder / (name + message_spool.SUFFIX)
    tickets = [b"" if data[:1] == b"L" else TICKET for data in messages]
    message_spool.write(file, [SpooledMessage(first + at, data, tickets[at]) for at, data in enumerate(messages)])
    return file


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    made = Journal(tmp_path / "j")
    yield made
    made.close()


def left_in(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))


def lines_of(journal: Journal) -> list[tuple[int, int, int]]:
    """(run, stream, number) of every line, in order of the chunks."""
    found = []
    for run, data in journal._connection.execute("SELECT run_id, data FROM chunks ORDER BY id"):
        parsed = logs_pb2.LogLines.FromString(zstandard.ZstdDecompressor().decompress(data))
        found += [(run, one.stream, one.seq) for one in parsed.blocks]
    return found


def rows(journal: Journal, sql: str) -> list[Any]:
    return journal._connection.execute(sql).fetchall()


def test_lines_ends_and_outcomes_of_several_attempts(tmp_path: Path, journal: Journal) -> None:
    messages = [line(1), line(2, STDERR), line(3), end(1, last_seq=3), end(2, last_seq=0, exit_code=7), line(1)]
    file = leave(tmp_path, *messages, end(3, last_seq=1, cause="executor_gone"))
    recover_messages(tmp_path, journal, Packer())
    assert lines_of(journal) == [(1, 1, 1), (1, 1, 3), (1, 2, 2), (3, 1, 1)]
    assert rows(journal, "SELECT run_id, last_seq FROM seals ORDER BY run_id") == [(1, 3), (3, 1)]
    assert rows(journal, "SELECT run_id, ticket FROM tickets ORDER BY run_id") == [(1, TICKET), (3, TICKET)]
    outcomes = {report.key: report.outcome for report in journal.remembered().reports}
    assert {key: one and one.kind for key, one in outcomes.items()} == {
        AttemptKey(1, 101): OutcomeKind.SUCCEEDED,
        AttemptKey(2, 102): OutcomeKind.FAILED,
    }, "of the one that died with the executor the cluster knows that it is lost"
    assert not file.exists()


async def test_what_the_journal_had_is_passed_over(tmp_path: Path, journal: Journal) -> None:
    journal.start()
    await journal.store(JournalBatch(ack_offsets={"inc.0": 2, "inc.1": 9}))
    journal.close()
    again = Journal(tmp_path / "j")
    leave(tmp_path, line(1), line(2), line(3), end(1, last_seq=3))
    leave(tmp_path, line(1), end(2, last_seq=1), first=8, name="inc.1")
    recover_messages(tmp_path, again, Packer())
    assert lines_of(again) == [(1, 1, 3)]
    assert [report.key.run_id for report in again.remembered().reports] == [1]
    assert rows(again, "SELECT * FROM heard") == [], "no file is left that these are about"
    again.close()


def test_a_kill_before_the_file_is_removed_doubles_nothing(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, line(1), end(1, last_seq=1))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda _self: os.kill(os.getpid(), signal.SIGKILL))
        if (child := os.fork()) == 0:
            recover_messages(tmp_path, Journal(tmp_path / "j"), Packer())
            os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    recover_messages(tmp_path, journal, Packer())
    assert lines_of(journal) == [(1, 1, 1)]
    assert not left_in(tmp_path, "*" + message_spool.SUFFIX)


def test_a_disk_that_refuses_leaves_it_to_the_next(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_batch: JournalBatch) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    file = leave(tmp_path, line(1), end(1, last_seq=1))
    with monkeypatch.context() as patch:
        patch.setattr(journal, "store_recovered", refuse)
        assert not recover_messages(tmp_path, journal, Packer())
    assert (lines_of(journal), file.exists()) == ([], True)
    assert recover_messages(tmp_path, journal, Packer())
    assert lines_of(journal) == [(1, 1, 1)]


@pytest.mark.parametrize("data", [b"J{}", b"Jno json", b"J" + b'{"t": "end", "run": 1}', b"L"])
def test_a_file_that_is_not_understood_stops_nothing(
    tmp_path: Path, journal: Journal, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    leave(tmp_path, data)
    leave(tmp_path, line(1), end(1, last_seq=1), name="inc.1")
    assert recover_messages(tmp_path, journal, Packer())
    assert lines_of(journal) == [(1, 1, 1)]
    assert "spool file of a guard is unreadable" in caplog.text
    assert [file.name for file in left_in(tmp_path, "*.bad")] == ["inc.0.bad"], "kept for inspection"
    assert not left_in(tmp_path, "*" + message_spool.SUFFIX)


FOREIGN = b"J" + json.dumps({"t": "end", "run": 1}).encode()


@pytest.mark.parametrize("broken", [b"J{}", b"Jno json", FOREIGN, b"L", b"\x00", end(2**70, last_seq=2)])
@pytest.mark.parametrize("at", [0, 1, 2, 4])
def test_one_message_that_cannot_be_read_costs_no_other(
    tmp_path: Path, journal: Journal, broken: bytes, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`at` lies between two attempts, before an end, or after everything."""
    messages = [line(1), end(1, last_seq=1), line(1), end(2, last_seq=1)]
    messages.insert(at, broken)
    leave(tmp_path, *messages)
    assert recover_messages(tmp_path, journal, Packer())
    assert sorted(report.key.run_id for report in journal.remembered().reports) == [1, 2]
    # A line before what may be an end of another attempt belongs to that.
    lost = {1: 1, 3: 2}.get(at) if broken != b"L" else None
    assert lines_of(journal) == [(run, 1, 1) for run in (1, 2) if run != lost]
    assert "spool file of a guard is unreadable in part" in caplog.text and "message" in caplog.text
    assert [file.name for file in left_in(tmp_path, "*.bad")] == ["inc.0.bad"], "kept for inspection"
    recover_messages(tmp_path, journal, Packer())
    assert len(lines_of(journal)) == 2 - (lost is not None)


@pytest.mark.parametrize("text", [b"no base64!", b"dGlja2V0", b""], ids=["no base64", "no message", "empty"])
async def test_a_ticket_that_cannot_be_read_costs_the_lines_of_its_attempt_alone(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal may have the ticket of run 3 from before."""
    journal = Journal(tmp_path / "j")
    journal.start()
    await journal.store(JournalBatch(seals=[Seal(AttemptKey(3, 103), 9)], tickets={AttemptKey(3, 103): TICKET}))
    journal.close()
    again = Journal(tmp_path / "j")
    records = []
    for number, data in enumerate(
        [line(1), end(1, last_seq=1), line(1), end(2, last_seq=1), line(1), end(3, last_seq=1)], 1
    ):
        ticket = {2: base64.b64encode(TICKET), 4: text, 6: text}.get(number, b"")
        records.append(struct.pack("<qII", number, len(data), len(ticket)) + data + ticket)
    (tmp_path / "inc.0.left").write_bytes(b"".join(records))
    assert recover_messages(tmp_path, again, Packer())
    assert lines_of(again) == [(1, 1, 1), (3, 1, 1)]
    assert sorted(report.key.run_id for report in again.remembered().reports) == [1, 2, 3]
    assert rows(again, "SELECT run_id, ticket FROM tickets ORDER BY run_id") == [(1, TICKET), (3, TICKET)]
    assert "run 2 has no readable log ticket" in caplog.text
    again.close()


@pytest.mark.parametrize(
    "content", [struct.pack("<qII", 1, 2, 1) + b"J{\xff", struct.pack("<qII", 2**62, 3, 0) + b"J[]"]
)
def test_a_file_that_is_no_text_stops_nothing(tmp_path: Path, journal: Journal, content: bytes) -> None:
    (tmp_path / "inc.0.left").write_bytes(content)
    assert recover_messages(tmp_path, journal, Packer())
    assert [file.name for file in left_in(tmp_path, "*.bad")] == ["inc.0.bad"]


async def test_tickets_of_attempts_that_can_never_end_are_dropped(tmp_path: Path, journal: Journal) -> None:
    """Executor and guard were killed: the chunks were shipped, and no seal comes."""
    journal.start()
    chunk = Chunk.of(AttemptKey(2, 102), [LogBlock(1, False, 1, 1, 1, b"x\n")], b"data")
    await journal.store(JournalBatch(chunks=[chunk], tickets={AttemptKey(run, 100 + run): b"t" for run in (1, 2, 3)}))
    await journal.store(JournalBatch(seals=[Seal(AttemptKey(3, 103), 5)]))
    journal.close()
    again = Journal(tmp_path / "j")
    (tmp_path / "x.0.draft").write_bytes(b"half")
    recover_messages(tmp_path, again, Packer())
    assert rows(again, "SELECT run_id FROM tickets ORDER BY run_id") == [(2,), (3,)]
    assert not left_in(tmp_path, "*.draft")
    again.close()


def test_many_lines_become_chunks_of_the_usual_size(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    leave(tmp_path, *(line(number) for number in range(1, 101)), end(1, last_seq=100))
    recover_messages(tmp_path, journal, Packer())
    assert [number for _, _, number in lines_of(journal)] == list(range(1, 101))
    assert rows(journal, "SELECT max(raw_bytes) < 200, count(*) FROM chunks") == [(1, 8)]


@pytest.mark.long
async def test_jobs_that_print_while_their_executor_is_killed_lose_no_line(world: Any, tmp_path: Path) -> None:
    """Again and again, at moments that have nothing to do with what it is doing."""
    counts = [tmp_path / f"count-{number}" for number in range(1, 9)]
    script = 'i=0; while :; do i=$((i+1)); echo "line $i"; echo $i > "$0.new"; mv "$0.new" "$0"; done'
    for life in range(4):
        await world.granted(incarnations=life + 1)
        mine = [2 * life + 1, 2 * life + 2]
        await world.start(*(world.order(run, "sh", "-c", script, str(counts[run - 1])) for run in mine))
        await world.until(lambda mine=mine: all(counts[run - 1].exists() for run in mine))
        await asyncio.sleep(0.013 * life)
        world.executor.process.kill()
        world.executor.process.wait()
        world.executor.start()
    for run, count in enumerate(counts, start=1):
        key, printed = (run, EPOCH | run), int(count.read_text())
        await world.until(lambda key=key: key in world.archiver.seals)
        lines = world.archiver.text(key)
        assert lines == [b"line %d" % number for number in range(1, len(lines) + 1)]
        assert len(lines) == world.archiver.seals[key] >= printed
    assert world.archiver.doubled == 0
    assert not left_in(world.executor.state / "guards", "*" + message_spool.SUFFIX)


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step in IN_GATE else [pytest.mark.long]) for step in STEPS]
)
async def test_kill_9_between_the_end_of_a_job_and_the_answer_to_its_report(
    world_maker: Any, tmp_path: Path, step: str
) -> None:
    """Lines of an attempt whose end the cluster knows are not lost, and in the end its log is whole."""
    world = world_maker()
    world.module = "stepping_executor"
    try:
        kill_at = tmp_path / "kill-at"
        kill_at.write_text(step)
        await world.open(KILL_AT=str(kill_at), PYTHONPATH=path_with(Path(__file__).parents[1]))
        # It may die before it answers.
        await asyncio.gather(world.start(world.order(1, "seq", "-f", "line %.0f", "500")), return_exceptions=True)
        await asyncio.to_thread(world.executor.process.wait, timeout=60)
        reported = (1, EPOCH | 1) in world.coordinator.outcomes
        assert reported == (step == "answered")
        world.executor.start()
        await world.granted(incarnations=2)
        outcome = await world.outcome(1)
        assert (outcome.kind, outcome.last_seq, outcome.last_line) == (SUCCEEDED, 500, "line 500")
        await world.until(lambda: (1, EPOCH | 1) in world.archiver.seals)
        assert world.archiver.text((1, EPOCH | 1)) == [b"line %d" % number for number in range(1, 501)]
        assert world.archiver.doubled == 0
    finally:
        await world.close()


def path_with(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
