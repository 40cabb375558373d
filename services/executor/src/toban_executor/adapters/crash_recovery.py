"""Recovers what the guards of a killed executor had not delivered: its last lines and outcomes, each once."""

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from toban_executor.adapters.journal import Journal
from toban_executor.decide.log_block import CHUNK_BYTES, LogBlock
from toban_executor.decide.models import AttemptEnd, Report
from toban_executor.decide.outcome import outcome_of
from toban_executor.guard import message_spool
from toban_executor.guard.message_spool import SpooledMessage
from toban_executor.guard.protocol import decode_report
from toban_executor.ports import Chunk, JournalBatch, Seal
from toban_observability.logs import get_logger

_log = get_logger(__name__)

# Jobs run as the same user and may have written it; a power failure leaves any content.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)

Pack = Callable[[Sequence[LogBlock]], bytes]


def recover_messages(folder: Path, journal: Journal, pack: Pack) -> bool:
    """From the spool files of guards into the journal. False when the disk refuses: the next incarnation recovers the rest."""
    try:
        for file in sorted(folder.glob("*" + message_spool.SUFFIX)):
            _recover_file(file, journal, pack)
        for draft in folder.glob("*" + message_spool.DRAFT):
            draft.unlink()
        journal.tidy()
    except (OSError, sqlite3.Error) as error:
        _log.error("cannot recover undelivered guard messages; will retry", error=str(error))
        return False
    return True


def _recover_file(file: Path, journal: Journal, pack: Pack) -> None:
    known = journal.ack_offset(file.stem)
    try:
        new = [message for message in message_spool.read(file) if message.number > known]
        batch = _batch(file.stem, new, pack) if new else JournalBatch()
        journal.store_recovered(batch)
    except _UNREADABLE as error:
        aside = file.rename(file.with_suffix(".bad"))
        _log.error("spool file of a guard is unreadable; moved aside", file=str(aside), error=repr(error))
        return
    file.unlink()
    if not new:
        return
    runs = sorted({seal.key.run_id for seal in batch.seals} | {report.key.run_id for report in batch.reports})
    lines = sum(chunk.lines for chunk in batch.chunks)
    _log.info("recovered undelivered guard messages", run_ids=runs, lines=lines, outcomes=len(batch.reports))


def _batch(guard: str, messages: Sequence[SpooledMessage], pack: Pack) -> JournalBatch:
    chunks: list[Chunk] = []
    seals: list[Seal] = []
    reports: list[Report] = []
    tickets = {}
    for end, blocks, ticket in _attempts(messages):
        if end.last_seq:
            chunks += _chunks(end, blocks, pack)
            seals.append(Seal(end.key, end.last_seq))
            tickets[end.key] = ticket
        if end.cause != "executor_gone":
            # The cluster counts the others as lost already.
            reports.append(Report(key=end.key, seq=2, outcome=outcome_of(end)))
    offsets = {guard: messages[-1].number}
    return JournalBatch(chunks=chunks, seals=seals, tickets=tickets, reports=reports, ack_offsets=offsets)


def _attempts(messages: Sequence[SpooledMessage]) -> Iterator[tuple[AttemptEnd, list[LogBlock], bytes]]:
    """Each attempt's end with its lines before, and its ticket: a guard has one attempt at a time, and ends it before it goes."""
    blocks: list[LogBlock] = []
    for message in messages:
        report = decode_report(message.data)
        if isinstance(report, LogBlock):
            blocks.append(report)
        elif isinstance(report, AttemptEnd):
            yield report, blocks, message.ticket
            blocks = []


def _chunks(end: AttemptEnd, blocks: Sequence[LogBlock], pack: Pack) -> Iterator[Chunk]:
    """The lines of each stream, in order."""
    for stream in sorted({block.stream for block in blocks}):
        mine: list[LogBlock] = []
        size = 0
        for block in blocks:
            if block.stream == stream:
                mine.append(block)
                size += len(block.text)
                if size >= CHUNK_BYTES:
                    yield Chunk.of(end.key, mine, pack(mine))
                    mine, size = [], 0
        if mine:
            yield Chunk.of(end.key, mine, pack(mine))
