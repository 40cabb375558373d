"""Rows of an executor's journal: what is put for records, reports and batches, and how log chunks and their sizes are read."""

import sqlite3
from collections.abc import Iterable
from typing import Any

from toban_domain.outcome import AttemptKey
from toban_executor.adapters.convert import report_to_bytes
from toban_executor.decide.models import Report
from toban_executor.ports.journal import JournalBatch
from toban_executor.ports.logs import Chunk, ChunkBatch, Seal
from toban_fencing.epoch_gate import Record

Statement = tuple[str, tuple[Any, ...]]
Place = tuple[int, int, int]
"""Token, run and number of a report."""


def record_row(record: Record) -> Statement:
    """Puts a record of the order book."""
    if record.kind == "epoch":
        return "INSERT OR REPLACE INTO meta VALUES ('epoch_max', ?)", (record.token,)
    pair = (record.token, record.run_id)
    if record.kind == "seen":
        return "INSERT OR IGNORE INTO seen VALUES (?, ?)", pair
    return "INSERT OR IGNORE INTO tombstones VALUES (?, ?)", pair


def batch_rows(batch: JournalBatch) -> list[Statement]:
    """Put all of a batch."""
    statements: list[Statement] = [
        ("INSERT OR IGNORE INTO tickets VALUES (?, ?, ?)", (key.token, key.run_id, ticket))
        for key, ticket in batch.tickets.items()
    ]
    statements += [_chunk(chunk) for chunk in batch.chunks]
    statements += [
        ("INSERT OR REPLACE INTO seals VALUES (?, ?, ?)", (seal.key.token, seal.key.run_id, seal.last_seq))
        for seal in batch.seals
    ]
    statements += [report_row(report) for report in batch.reports]
    statements += [("INSERT OR REPLACE INTO heard VALUES (?, ?)", offset) for offset in batch.ack_offsets.items()]
    return statements


def place_of(key: AttemptKey, seq: int) -> Place:
    """The key of a report's row."""
    return key.token, key.run_id, seq


def report_row(report: Report) -> Statement:
    """Puts a report."""
    row = (*place_of(report.key, report.seq), report_to_bytes(report))
    return "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?)", row


def log_bytes(db: sqlite3.Connection) -> int:
    """Compressed bytes of all log chunks."""
    return int(db.execute("SELECT bytes + refused FROM log_size").fetchone()[0])


def waiting_bytes(db: sqlite3.Connection) -> int:
    """The same without those in quarantine."""
    return int(db.execute("SELECT bytes FROM log_size").fetchone()[0])


def refused_chunks(db: sqlite3.Connection) -> int:
    """How many chunks are in quarantine."""
    return int(db.execute("SELECT count(*) FROM refused_chunks").fetchone()[0])


def _chunk(chunk: Chunk) -> Statement:
    sql = (
        "INSERT INTO chunks (token, run_id, stream, seq_from, seq_to, lines, raw_bytes, first_ns, last_ns, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    place = (chunk.key.token, chunk.key.run_id, chunk.stream, chunk.seq_from, chunk.seq_to)
    return sql, (*place, chunk.lines, chunk.raw_bytes, chunk.first_ns, chunk.last_ns, chunk.data)


def read_chunks(db: sqlite3.Connection, after: int, limit: int, max_bytes: int) -> ChunkBatch:
    """The chunks after this one, with their tickets; the seals too once no chunk is left behind."""
    sql = (
        "SELECT id, run_id, token, stream, seq_from, seq_to, lines, raw_bytes, first_ns, last_ns, data "
        "FROM chunks WHERE id > ? ORDER BY id LIMIT ?"
    )
    chunks: list[Chunk] = []
    total, cut = 0, False
    for row in db.execute(sql, (after, limit)):
        if chunks and total + len(row[10]) > max_bytes:
            cut = True
            break
        total += len(row[10])
        chunks.append(Chunk(row[0], AttemptKey(row[1], row[2]), *row[3:]))
    seals: list[Seal] = []
    if not cut and len(chunks) < limit:
        found = db.execute("SELECT run_id, token, last_seq FROM seals LIMIT 1000")
        seals = [Seal(AttemptKey(run, token), last) for run, token, last in found]
    keys = {chunk.key for chunk in chunks} | {seal.key for seal in seals}
    return ChunkBatch(chunks=chunks, seals=seals, tickets=tickets_of(db, keys))


def tickets_of(db: sqlite3.Connection, keys: Iterable[AttemptKey]) -> dict[AttemptKey, bytes]:
    """The log tickets that are there of these attempts."""
    sql = "SELECT ticket FROM tickets WHERE token = ? AND run_id = ?"
    rows = {key: db.execute(sql, (key.token, key.run_id)).fetchone() for key in keys}
    return {key: row[0] for key, row in rows.items() if row is not None}
