"""The journal: what survives kill -9, grouping, a disk that refuses."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind
from toban_executor.adapters import journal as journal_module
from toban_executor.adapters.journal import Journal
from toban_executor.decide.models import Report
from toban_executor.ports.coordinator import SignedEpoch
from toban_executor.ports.journal import JournalBatch
from toban_executor.ports.logs import Chunk, Seal
from toban_fencing.epoch_gate import Record
from toban_proto.v1.common_pb2 import SignedEpoch as SignedEpochMessage
from toban_proto.v1.common_pb2 import SignedEpochBody
from toban_testing.waiting import until

KEY = AttemptKey(1, 101)
END = Outcome(kind=OutcomeKind.SUCCEEDED, exit_code=0, finished_at=datetime(2026, 11, 21, tzinfo=UTC))


def chunk(key: AttemptKey, seq: int, size: int = 10) -> Chunk:
    return Chunk(0, key, 1, seq, seq, 1, size, 1, 1, b"x" * size)


def run_python(code: str, argument: str) -> int:
    return subprocess.run([sys.executable, "-c", code, argument], check=False).returncode


async def opened(path: Path) -> Journal:
    journal = Journal(path)
    journal.start()
    return journal


@pytest.mark.parametrize("damaged", [b"\xff\xff\xff", b"\x0a\x02\xff\xff", "text"], ids=["message", "body", "text"])
async def test_a_damaged_signed_epoch_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: bytes | str
) -> None:
    """The executor starts without it, and says so."""
    (await opened(tmp_path / "j")).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "j")) as connection, connection:
        connection.execute("INSERT INTO meta (key, value) VALUES ('signed_epoch', ?)", (damaged,))
    again = Journal(tmp_path / "j")
    assert again.remembered().signed_epoch is None
    again.close()
    assert "stored signed epoch is damaged" in caplog.text


async def test_remembers_over_a_restart(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "j")
    await journal.record([Record("epoch", 0, 7), Record("seen", 1, 101), Record("tombstone", 2, 102)])
    journal.put_report(Report(key=KEY, seq=2, outcome=END))
    journal.put_report(Report(key=AttemptKey(2, 50), seq=2, outcome=END))
    journal.drop_reports([(AttemptKey(2, 50), 2)])
    await journal.set_meta("instance", "abc")
    body = SignedEpochBody(cluster_id="c", epoch=7, incarnation="i", grant_seq=3)
    message = SignedEpochMessage(body=body.SerializeToString(), signature=b"s", certificate=b"c").SerializeToString()
    journal.post_signed_epoch(SignedEpoch(epoch=7, incarnation="i", grant_seq=3, message=message))
    journal.close()
    again = Journal(tmp_path / "j")
    kept = again.remembered()
    assert (kept.epoch_max, kept.seen, kept.tombstones) == (7, (KEY,), (AttemptKey(2, 102),))
    assert kept.reports == (Report(key=KEY, seq=2, outcome=END),)
    assert again.meta("instance") == "abc"
    assert kept.signed_epoch == SignedEpoch(epoch=7, incarnation="i", grant_seq=3, message=message)
    again.close()


async def test_the_quarantine_survives_a_restart(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "j")
    report = Report(key=KEY, seq=2, outcome=END)
    journal.put_report(report)
    journal.quarantine_report(report, "no partition")
    await journal.store(JournalBatch(chunks=[chunk(KEY, 1), chunk(KEY, 2)], seals=[Seal(KEY, 2)], tickets={KEY: b"t"}))
    first = (await journal.chunks_after(0, limit=10, max_bytes=1000)).chunks[0]
    assert await journal.quarantine_chunks([first.id], [KEY]) == 1
    assert await journal.log_bytes() == 10
    # Lines in quarantine count for the budget of the journal.
    assert await journal.store(JournalBatch()) == 20
    journal.close()
    again = Journal(tmp_path / "j")
    kept = again.remembered()
    assert (kept.reports, kept.quarantined) == ((), ((report, "no partition"),))
    again.tidy()
    again.start()
    assert await again.requeue_chunks(5) == (1, 0)
    back = await again.chunks_after(0, limit=10, max_bytes=1000)
    assert ([one.seq_from for one in back.chunks], back.seals, back.tickets) == ([2, 1], [Seal(KEY, 2)], {KEY: b"t"})
    again.drop_reports([(KEY, 2)])
    await again.flush()
    again.close()
    last = Journal(tmp_path / "j")
    assert last.remembered().quarantined == ()
    last.close()


async def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    code = """
import asyncio, os, signal, sys
from pathlib import Path
from toban_executor.adapters.journal import Journal
from toban_fencing.epoch_gate import Record
async def main():
    journal = Journal(Path(sys.argv[1])); journal.start()
    await asyncio.gather(*(journal.record([Record("tombstone", n, 1000 + n)]) for n in range(200)))
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    assert run_python(code, str(tmp_path / "j")) == -9
    again = Journal(tmp_path / "j")
    assert len(again.remembered().tombstones) == 200
    again.close()


async def test_reports_survive_kill_9_until_they_are_dropped(tmp_path: Path) -> None:
    """Of each pair one report is answered: before it is written, after it, and out of the quarantine."""
    code = """
import asyncio, os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind
from toban_executor.adapters.journal import Journal
from toban_executor.decide.models import Report
from toban_executor.ports.journal import JournalBatch
from toban_testing.waiting import until
from toban_fencing.epoch_gate import Record
def report(n):
    return Report(key=AttemptKey(n, 100 + n), seq=2, outcome=Outcome(kind=OutcomeKind.SUCCEEDED, finished_at=datetime(2026, 11, 21, tzinfo=UTC)))
def drop(journal, n): journal.drop_reports([(AttemptKey(n, 100 + n), 2)])
async def main():
    journal = Journal(Path(sys.argv[1])); journal.start()
    for n in (1, 2): journal.put_report(report(n))
    drop(journal, 2)
    for n in (3, 4): journal.put_report(report(n))
    await journal.flush()
    drop(journal, 4)
    await journal.store(JournalBatch(reports=[report(5), report(6)]))
    # Reported ahead of its lines, which are written all the same.
    journal.put_report(report(6)); drop(journal, 6)
    for n in (7, 8): journal.put_report(report(n)); journal.quarantine_report(report(n), "no")
    drop(journal, 8)
    journal.put_report(report(9)); await journal.flush(); journal.put_report(report(9)); drop(journal, 9)
    await journal.record([Record("seen", 1, 101)])
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    assert run_python(code, str(tmp_path / "j")) == -9
    again = Journal(tmp_path / "j")
    kept = again.remembered()
    assert [report.key.run_id for report in kept.reports] == [1, 3, 5]
    assert [report.key.run_id for report, _ in kept.quarantined] == [7]
    again.start()
    # In quarantine since an earlier process.
    again.drop_reports([(AttemptKey(7, 107), 2)])
    again.close()
    last = Journal(tmp_path / "j")
    assert last.remembered().quarantined == ()
    last.close()


async def test_a_report_that_is_answered_before_it_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The writer gathers for so long, unless a caller waits.
    monkeypatch.setattr(journal_module, "_GATHER_SECONDS", 60.0)
    journal = await opened(tmp_path / "j")
    written: list[str] = []
    journal._connection.set_trace_callback(written.append)
    reports = [Report(key=AttemptKey(n, n), seq=2, outcome=END) for n in (1, 2)]
    for report in reports:
        journal.put_report(report)
    journal.drop_reports([(reports[0].key, 2)])
    await journal.flush()
    assert [sql.split(" VALUES")[0] for sql in written if "reports" in sql] == ["INSERT OR REPLACE INTO reports"]
    journal.drop_reports([(reports[1].key, 2)])
    await journal.flush()
    assert sum("DELETE FROM reports" in sql for sql in written) == 1
    assert not any("refused_reports" in sql for sql in written), "nothing is in quarantine"
    journal.close()


async def test_many_posts_wake_the_writer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_GATHER_SECONDS", 60.0)
    journal = Journal(tmp_path / "j")
    for number in range(1, 301):
        journal.put_report(Report(key=AttemptKey(number, number), seq=2, outcome=END))
    assert journal._wakes.qsize() == 1
    journal.start()
    # One who waits ends the gathering.
    await journal.flush()
    journal.close()
    again = Journal(tmp_path / "j")
    assert len(again.remembered().reports) == 300
    again.close()


async def test_the_end_of_the_journal_writes_what_was_posted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_GATHER_SECONDS", 60.0)
    journal = await opened(tmp_path / "j")
    journal.put_report(Report(key=KEY, seq=2, outcome=END))
    journal.close()
    again = Journal(tmp_path / "j")
    assert [report.key for report in again.remembered().reports] == [KEY]
    again.close()


async def test_many_records_share_commits(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "j")
    before = journal_module._commits.labels("ok")._value.get()
    await asyncio.gather(*(journal.record([Record("seen", n, n)]) for n in range(1, 501)))
    assert journal_module._commits.labels("ok")._value.get() - before < 50
    journal.forget_below(400)
    await journal.flush()
    journal.close()
    again = Journal(tmp_path / "j")
    assert len(again.remembered().seen) == 101
    again.close()


async def test_chunks_come_in_order_with_tickets_and_seals_last(tmp_path: Path) -> None:
    journal = await opened(tmp_path / "j")
    chunks = [chunk(KEY, number) for number in (1, 2, 3)]
    assert await journal.store(JournalBatch(chunks=chunks, seals=[Seal(KEY, 3)], tickets={KEY: b"ticket"})) == 30
    first = await journal.chunks_after(0, limit=2, max_bytes=1000)
    assert ([one.seq_from for one in first.chunks], first.seals, first.tickets) == ([1, 2], [], {KEY: b"ticket"})
    small = await journal.chunks_after(0, limit=10, max_bytes=15)
    assert (len(small.chunks), small.seals) == (1, [])
    rest = await journal.chunks_after(first.chunks[-1].id, limit=10, max_bytes=1000)
    assert ([one.seq_from for one in rest.chunks], rest.seals) == ([3], [Seal(KEY, 3)])
    assert await journal.log_bytes() == 30
    journal.drop_chunks([one.id for one in (*first.chunks, *rest.chunks)], [KEY])
    empty = await journal.chunks_after(0, limit=10, max_bytes=1000)
    assert (empty.chunks, empty.seals, empty.tickets) == ([], [], {})
    journal.close()


async def test_a_full_disk_fails_those_who_wait_and_keeps_what_was_posted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_RETRY_SECONDS", 0.02)
    journal = await opened(tmp_path / "j")
    await journal.flush()
    (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
    journal._connection.execute(f"PRAGMA max_page_count = {pages}")
    journal.put_report(Report(key=KEY, seq=2, outcome=END))
    with pytest.raises(TobanError) as caught:
        await journal.store(JournalBatch(chunks=[chunk(KEY, 1, size=100_000)]))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    journal._connection.execute("PRAGMA max_page_count = 1000000")
    await journal.flush()
    journal.close()
    again = Journal(tmp_path / "j")
    assert [report.key for report in again.remembered().reports] == [KEY]
    again.close()


def test_a_damaged_journal_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"no database " * 100)
    with pytest.raises(TobanError, match=r"journal .*/j cannot be opened: file is not a database; .* move it away"):
        Journal(tmp_path / "j")


async def test_a_report_that_is_withdrawn_while_the_writer_takes_it_stops_no_writer(tmp_path: Path) -> None:
    class Withdrawn(deque[object]):
        """The event loop has a turn when the writer has looked at the queue, or is about to take from it."""

        def __bool__(self) -> bool:
            found = len(self) > 0
            withdraw()
            return found

        def popleft(self) -> object:
            withdraw()
            return super().popleft()

    def withdraw() -> None:
        if places:
            journal.drop_reports([places.pop()])

    places: list[tuple[AttemptKey, int]] = []
    journal = Journal(tmp_path / "j")
    journal._waiting = Withdrawn()  # type: ignore[assignment]
    journal.start()
    await journal.flush()
    # The report alone waits when the writer looks.
    places.append((KEY, 2))
    journal.put_report(Report(key=KEY, seq=2, outcome=END))
    await until(lambda: not places)
    await journal.flush()
    journal.close()
    again = Journal(tmp_path / "j")
    assert again.remembered().reports == ()
    again.close()
