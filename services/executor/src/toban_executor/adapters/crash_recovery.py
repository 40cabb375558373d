"""Recovers what the guards of a killed executor had not delivered: its last lines and outcomes, each once."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from google.protobuf.message import DecodeError

from toban_domain.log_block import CHUNK_BYTES, LogBlock
from toban_executor.adapters.convert import ticket_from_bytes
from toban_executor.adapters.journal import Journal
from toban_executor.decide.models import AttemptEnd, Report
from toban_executor.decide.outcome import outcome_of
from toban_executor.guard import message_spool
from toban_executor.guard.message_spool import SpooledMessage
from toban_executor.guard.protocol import BLOCK_KIND, UNREADABLE, decode_report
from toban_executor.ports.journal import JournalBatch
from toban_executor.ports.logs import Chunk, Seal
from toban_observability.logs import get_logger

_log = get_logger(__name__)

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


class _Attempt(NamedTuple):
    """An attempt's end with the lines before it, and the number of its message. `ticket` b"": none that can be read."""

    end: AttemptEnd
    blocks: list[LogBlock]
    ticket: bytes
    number: int


def _recover_file(file: Path, journal: Journal, pack: Pack) -> None:
    """What cannot be read is skipped, and the file then kept aside; nothing else in it is lost by that."""
    known = journal.ack_offset(file.stem)
    attempts, problems = _attempts([message for message in message_spool.read(file) if message.number > known])
    stored = _store(file.stem, attempts, journal, pack, problems)
    if problems:
        aside = file.rename(file.with_suffix(".bad"))
        _log.error(
            "spool file of a guard is unreadable in part; the rest is recovered, the file is kept",
            file=str(aside),
            skipped=len(problems),
            error=problems[0],
        )
    else:
        file.unlink()
    if not stored:
        return
    runs = sorted(
        {seal.key.run_id for one in stored for seal in one.seals}
        | {report.key.run_id for one in stored for report in one.reports}
    )
    lines = sum(chunk.lines for one in stored for chunk in one.chunks)
    outcomes = sum(len(one.reports) for one in stored)
    _log.info("recovered undelivered guard messages", run_ids=runs, lines=lines, outcomes=outcomes)


def _attempts(messages: Sequence[SpooledMessage]) -> tuple[list[_Attempt], list[str]]:
    """The attempts in a spool, and what is wrong with it: a guard has one attempt at a time, and ends it before it goes."""
    attempts: list[_Attempt] = []
    problems: list[str] = []
    blocks: list[LogBlock] = []
    for message in messages:
        try:
            report = decode_report(message.data)
        except UNREADABLE as error:
            problems.append(f"message {message.number}: {error!r}")
            if message.data[:1] != BLOCK_KIND:
                # It may have been an end: the lines before it must not become another attempt's.
                blocks = []
            continue
        if isinstance(report, LogBlock):
            blocks.append(report)
        elif isinstance(report, AttemptEnd):
            attempts.append(_Attempt(report, blocks, message.ticket, message.number))
            blocks = []
    return attempts, problems


def _store(
    guard: str, attempts: Sequence[_Attempt], journal: Journal, pack: Pack, problems: list[str]
) -> list[JournalBatch]:
    """Stores the attempts together; one by one when one of them has values that nothing can store."""
    if not attempts:
        return []
    found: list[str] = []
    try:
        batch = _batch(guard, attempts, journal, pack, found)
        journal.store_recovered(batch)
    except UNREADABLE as error:
        if len(attempts) > 1:
            return [batch for one in attempts for batch in _store(guard, [one], journal, pack, problems)]
        problems.append(f"message {attempts[0].number}: {error!r}")
        return []
    problems += found
    return [batch]


def _batch(guard: str, attempts: Sequence[_Attempt], journal: Journal, pack: Pack, problems: list[str]) -> JournalBatch:
    chunks: list[Chunk] = []
    seals: list[Seal] = []
    reports: list[Report] = []
    tickets = {}
    for end, blocks, ticket, number in attempts:
        if end.last_seq and (_is_ticket(ticket) or journal.has_ticket(end.key)):
            chunks += _chunks(end, blocks, pack)
            seals.append(Seal(end.key, end.last_seq))
            if _is_ticket(ticket):
                tickets[end.key] = ticket
        elif end.last_seq:
            # Without a ticket no log-archiver takes them: they would hold up the lines of all others.
            problems.append(
                f"message {number}: run {end.key.run_id} has no readable log ticket, its last lines are lost"
            )
        if end.cause != "executor_gone":
            # The cluster counts the others as lost already.
            reports.append(Report(key=end.key, seq=2, outcome=outcome_of(end)))
    offsets = {guard: attempts[-1].number}
    return JournalBatch(chunks=chunks, seals=seals, tickets=tickets, reports=reports, ack_offsets=offsets)


def _is_ticket(ticket: bytes) -> bool:
    try:
        return bool(ticket_from_bytes(ticket).body)
    except DecodeError:
        return False


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
