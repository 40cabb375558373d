"""One large log: what it takes in the database and in S3, how fast it is archived and in how much memory, and how soon its first line comes.

Usage: log_archive.py [MB]; prints one JSON line a figure. The log is put into an old day's table as its chunks would be, then the setting
log_retention_days_db lets it go; a log-archiver moves it (object store with its own files, PostgreSQL with fsync), and readers ask for it.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from bench_cpu import Usage
from bench_stack import whole_stack
from log_text import MB, pieces

from toban_domain.log_block import CHUNK_BYTES, LogBlock
from toban_executor.adapters.log_client import Packer
from toban_executor.guard.line_splitter import LineNumbering, LineSplitter
from toban_log_archiver.decide.stored_chunks import NewChunk
from toban_log_archiver.store import chunks, log_attempts, partitions
from toban_log_archiver.store.log_attempts import TokenNote
from toban_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.stack import Stack
from toban_store.pool import Pool, open_pool
from toban_store.tx import autocommit, tx
from toban_testing.admin_client import AdminClient
from toban_testing.log_readers import read_ticket
from toban_testing.stack_fixtures import sql
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream
from toban_transport.tls import TlsFiles

SIZE = int(sys.argv[1]) * MB if len(sys.argv) > 1 else 2000 * MB
RUN, TOKEN = 1 << 40, 1
DAY = datetime.now(UTC).date() - timedelta(days=20)
COMMIT_CHUNKS = 32
READS = 10


def new_chunk(blocks: list[LogBlock], pack: Packer) -> NewChunk:
    """As an archiver stores it."""
    at = datetime.fromtimestamp(blocks[0].at_ns / 1e9, UTC)
    return NewChunk(
        log_day=DAY,
        run_id=RUN,
        token=TOKEN,
        stream=1,
        seq_from=blocks[0].seq_from,
        seq_to=blocks[-1].seq_from + blocks[-1].lines - 1,
        line_count=sum(block.lines for block in blocks),
        raw_bytes=sum(len(block.text) for block in blocks),
        first_at=at,
        last_at=at,
        data=pack(blocks),
    )


async def fill(pool: Pool) -> tuple[int, int]:
    """The log, sealed; its lines and bytes."""
    async with autocommit(pool) as t:
        await partitions.ensure(t, first=DAY, last=DAY)
    numbering, pack, size = LineNumbering(), Packer(), 0
    cutter = LineSplitter(stream=1, numbering=numbering, now_ns=time.time_ns)
    blocks: list[LogBlock] = []
    new: list[NewChunk] = []
    for piece in pieces(SIZE):
        size += len(piece)
        blocks += cutter.feed(piece)
        if sum(len(block.text) for block in blocks) >= CHUNK_BYTES:
            new.append(new_chunk(blocks, pack))
            blocks = []
        if len(new) == COMMIT_CHUNKS:
            await store(pool, new)
            new = []
    if blocks:
        new.append(new_chunk(blocks, pack))
    await store(pool, new, seal=numbering.last_seq)
    return numbering.last_seq, size


async def store(pool: Pool, new: list[NewChunk], *, seal: int | None = None) -> None:
    """One commit."""
    note = TokenNote(
        log_day=DAY,
        run_id=RUN,
        token=TOKEN,
        incarnation="11111111-2222-4333-8444-555555555555",
        last_seq=seal,
    )
    async with tx(pool) as t:
        await log_attempts.note(t, [note])
        await chunks.append(t, new)


def retain(admin: AdminClient, days: int) -> None:
    """Set log_retention_days_db."""
    request = coordinator_pb2.UpdateSettingRequest(
        name="log_retention_days_db", value_json=str(days), reason="benchmark"
    )
    admin.call(coordinator_pb2_grpc.OperationsStub, "UpdateSetting", request)


def archive(stack: Stack, admin: AdminClient, size: int) -> dict[str, Any]:
    """Let the log go; what it took."""
    pid = stack.processes()["log-archiver-1"].pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before, usage, begun = memory_mb(pid, "VmRSS"), Usage(stack), time.perf_counter()
    retain(admin, 7)
    while sql(stack, "SELECT to_regclass(%(name)s::text) IS NOT NULL AS there", name=table(DAY))[0]["there"]:
        time.sleep(0.05)
    seconds = time.perf_counter() - begun
    [row] = sql(
        stack, "SELECT count(*) AS objects, sum(bytes)::bigint AS bytes FROM logs.objects WHERE state = 'verified'"
    )
    [kept] = sql(stack, "SELECT pg_total_relation_size('logs.manifests') AS bytes")
    return {
        "seconds": round(seconds, 2),
        "objects": row["objects"],
        "s3_bytes_a_mb": round(row["bytes"] / size * MB),
        "manifest_bytes_a_mb": round(kept["bytes"] / size * MB),
        "rss_before_mb": before,
        "rss_peak_mb": memory_mb(pid, "VmHWM"),
        "cpu_s": usage.seconds(),
        "archive_mb_per_s": round(size / MB / seconds, 1),
        "archive_stored_mb_per_s": round(row["bytes"] / MB / seconds, 1),
    }


def table(day: date) -> str:
    """The partition of a day."""
    return f"logs.chunks_{day:%Y%m%d}"


def memory_mb(pid: int, name: str) -> int:
    """A line of /proc/PID/status."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0]) // 1024


async def first_lines(stack: Stack, lines: int, size: int) -> dict[str, dict[str, float]]:
    """Milliseconds from the call to the first line, by kind of question."""
    pool = ChannelPool(tls=TlsFiles(stack.home.tls / "admin-cli"), trust_domain=TRUST_DOMAIN)
    stub = logs_pb2_grpc.LogReaderStub(pool.get(stack.log_archivers[0], "log-archiver"))

    def ask(**given: Any) -> AsyncIterator[logs_pb2.ReadLogResponse]:
        return stream(
            stub.Read, logs_pb2.ReadLogRequest(run_id=RUN, ticket=read_ticket(stack.home.tls, RUN), **given), timeout=60
        )

    async def first(**given: Any) -> float:
        begun = time.perf_counter()
        answers = ask(**given)
        async for answer in answers:
            if answer.lines or answer.data:
                break
        seconds = time.perf_counter() - begun
        await answers.aclose()  # type: ignore[attr-defined]
        return seconds * 1000

    await first(head=1)
    found: dict[str, list[float]] = {}
    for number in range(READS):
        part = (number + 1) / (READS + 2)
        questions: dict[str, dict[str, Any]] = {
            "head": {"head": 100},
            "tail": {"tail": 100},
            "whole": {},
            "line": {"from_seq": int(lines * part), "head": 100},
            "bytes": {"raw": True, "token": TOKEN, "byte_from": int(size * part), "byte_to": int(size * part) + 10_000},
        }
        for kind, given in questions.items():
            found.setdefault(kind, []).append(await first(**given))
    await pool.close()
    return {
        kind: {"p50_ms": round(statistics.median(times), 1), "max_ms": round(max(times), 1)}
        for kind, times in found.items()
    }


def print_figure(bench: str, size: int, **figure: Any) -> None:
    """One figure."""
    print(json.dumps({"bench": bench, "mb": round(size / MB), "load": os.getloadavg()[0], **figure}), flush=True)


async def filled(stack: Stack) -> tuple[int, int]:
    """As `fill`, with a pool of its own."""
    pool = await open_pool(stack.endpoints().database_url, application_name="bench", min_size=1, max_size=2)
    try:
        return await fill(pool)
    finally:
        await pool.close()


def main() -> None:
    """Fill, measure the tables, archive, read."""
    with whole_stack(executors=1, slots=2) as (stack, admin):
        retain(admin, 30)
        lines, size = asyncio.run(filled(stack))
        [row] = sql(stack, "SELECT pg_total_relation_size(%(name)s::regclass) AS bytes", name=table(DAY))
        print_figure("log_stored", size, database_bytes_a_mb=round(row["bytes"] / size * MB))
        print_figure("log_first_line_database", size, **asyncio.run(first_lines(stack, lines, size)))
        print_figure("log_archive", size, **archive(stack, admin, size))
        print_figure("log_first_line_archive", size, **asyncio.run(first_lines(stack, lines, size)))
        pid = stack.processes()["log-archiver-1"].pid
        print_figure("log_archiver_memory", size, rss_peak_mb=memory_mb(pid, "VmHWM"))


if __name__ == "__main__":
    main()
