"""Takes up what the guards of a killed executor left: its last lines and outcomes, each once."""

import base64
import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from toban_executor.adapters.guard_client import block_of, end_of
from toban_executor.adapters.journal import Journal
from toban_executor.decide.log_block import CHUNK_BYTES, LogBlock
from toban_executor.decide.models import AttemptEnd, Report
from toban_executor.decide.outcome import outcome_of
from toban_executor.guard import left
from toban_executor.guard.wire import decode
from toban_executor.ports import Block, Chunk, Seal, Taken
from toban_observability.logs import get_logger

_log = get_logger(__name__)

# Jobs have the same user and may have written it; a power cut leaves what it likes.
_NOT_UNDERSTOOD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, struct.error)

Pack = Callable[[Sequence[Block]], bytes]


def take_up(folder: Path, journal: Journal, pack: Pack) -> bool:
    """From the files of guards into the journal. False when the disk refuses: the next incarnation takes up what is left."""
    try:
        for file in sorted(folder.glob("*" + left.SUFFIX)):
            _take_file(file, journal, pack)
        for draft in folder.glob("*" + left.DRAFT):
            draft.unlink()
        journal.tidy()
    except (OSError, sqlite3.Error) as error:
        _log.error("what guards left cannot be taken up now", error=str(error))
        return False
    return True


def _take_file(file: Path, journal: Journal, pack: Pack) -> None:
    known = journal.heard(file.stem)
    try:
        new = [said for said in left.read(file) if said.number > known]
        taken = _taken(file.stem, new, pack) if new else Taken()
        journal.take_up(taken)
    except _NOT_UNDERSTOOD as error:
        aside = file.rename(file.with_suffix(".bad"))
        _log.error("a guard's file is not understood and is put aside", file=str(aside), error=repr(error))
        return
    file.unlink()
    if not new:
        return
    runs = sorted({seal.key.run_id for seal in taken.seals} | {report.key.run_id for report in taken.reports})
    lines = sum(chunk.lines for chunk in taken.chunks)
    _log.info("took up what a guard left", run_ids=runs, lines=lines, outcomes=len(taken.reports))


def _taken(guard: str, said: Sequence[left.Said], pack: Pack) -> Taken:
    chunks: list[Chunk] = []
    seals: list[Seal] = []
    reports: list[Report] = []
    tickets = {}
    for end, blocks, ticket in _attempts(said):
        if end.last_seq:
            chunks += _chunks(end, blocks, pack)
            seals.append(Seal(end.key, end.last_seq))
            tickets[end.key] = base64.b64decode(ticket)
        if end.cause != "executor_gone":
            # The cluster knows of the others that they are lost.
            reports.append(Report(key=end.key, seq=2, outcome=outcome_of(end)))
    return Taken(chunks=chunks, seals=seals, tickets=tickets, reports=reports, heard={guard: said[-1].number})


def _attempts(said: Sequence[left.Said]) -> Iterator[tuple[AttemptEnd, list[Block], str]]:
    """Each attempt's end with its lines before, and its ticket: a guard has one attempt at a time, and ends it before it goes."""
    blocks: list[Block] = []
    for one in said:
        message = decode(one.data)
        if isinstance(message, LogBlock):
            blocks.append(block_of(message))
        elif message["t"] == "end":
            yield end_of(message), blocks, one.ticket
            blocks = []


def _chunks(end: AttemptEnd, blocks: Sequence[Block], pack: Pack) -> Iterator[Chunk]:
    """The lines of each stream, in order."""
    for stream in sorted({block.stream for block in blocks}):
        mine: list[Block] = []
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
