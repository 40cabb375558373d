"""Log text a second to committed rows: through LogIngest by the executor's own shipping code, and whole, from a job that prints.

Usage: log_ingest.py [MB] [plain|json]; prints two JSON lines. Everything runs on this machine: PostgreSQL with fsync, a log-archiver, the
sender with its journal (fsync); for the second figure two coordinators, an executor, its guard and `cat`.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench_cpu import Usage
from bench_stack import job, whole_stack
from log_text import MB, pieces, write_text

from toban_domain.outcome import AttemptKey
from toban_executor.adapters.journal import Journal
from toban_executor.adapters.log_client import ArchiverClient, Packer
from toban_executor.app.log_collector import LogCollector
from toban_executor.guard.line_splitter import LineNumbering, LineSplitter
from toban_executor.loops.log_shipper import LogShipper
from toban_proto.v1.common_pb2 import LogTicket
from toban_runtime.clock import SystemClock
from toban_runtime.loop import Loop
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import sql
from toban_testing.starter import temporary_folder
from toban_transport.channel import ChannelPool
from toban_transport.log_ticket import TicketSigner
from toban_transport.tls import TlsFiles

SIZE = int(sys.argv[1]) * MB if len(sys.argv) > 1 else 400 * MB
KIND = sys.argv[2] if len(sys.argv) > 2 else "plain"
WARM = AttemptKey(1 << 40, 1)
MEASURED = AttemptKey((1 << 40) + 1, 1)
JOURNAL_BYTES = 4096 << 20


class NoKey:
    """For tickets that ask for no key."""

    metadata: tuple[tuple[str, str], ...] = ()
    key_hash = b""

    async def renew_log_tickets(self, tickets: Sequence[LogTicket]) -> list[LogTicket | None]:
        """Never called."""
        raise AssertionError(tickets)


class Sender:
    """An executor's way from blocks of lines to an archiver, without guards: collector, journal, shipper."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.held = False
        self._stack = stack
        self._signer = TicketSigner(TlsFiles(stack.home.tls / "coordinator"))
        self._clock = SystemClock()
        self._channels = ChannelPool(tls=TlsFiles(stack.home.tls / "executor"), trust_domain=TRUST_DOMAIN)
        self._journal = Journal(folder / "journal.sqlite3")
        archivers = ArchiverClient(channels=self._channels, addresses=stack.log_archivers, keys=NoKey())
        self._collect = Loop("collect", lambda: self._collector.run_once(), 1.0, self._clock)
        self._ship = Loop("ship", LogShipper(journal=self._journal, archivers=archivers).run_once, 2.0, self._clock)
        guards: Any = SimpleNamespace(hold_output=self._hold, ack_offsets=dict, ack=lambda _offsets: None)
        self._collector = LogCollector(
            journal=self._journal,
            guards=guards,
            pack=Packer(),
            clock=self._clock,
            max_journal_bytes=JOURNAL_BYTES,
            wake=self._collect.wake,
            wake_shipper=self._ship.wake,
            report=lambda _report: None,
        )

    async def send(self, key: AttemptKey, size: int) -> int:
        """Takes in `size` bytes of an attempt as fast as it may, ends it and returns when all is committed; the bytes."""
        self._collector.opened(key, self._ticket(key))
        numbering, sent = LineNumbering(), 0
        cutter = LineSplitter(stream=1, numbering=numbering, now_ns=time.time_ns)
        for piece in pieces(size, kind=KIND):
            for block in cutter.feed(piece):
                self._collector.add(
                    key,
                    block,
                )
            sent += len(piece)
            await asyncio.sleep(0.002 if self.held else 0)
        self._collector.closed(key, numbering.last_seq)
        while self._collector.pending or await self._journal.log_bytes():  # noqa: ASYNC110 - the journal has no such signal
            await asyncio.sleep(0.002)
        return sent

    async def run(self) -> dict[str, Any]:
        """Warm up, then send SIZE bytes; the seconds and the bytes."""
        self._journal.start()
        stop = asyncio.Event()
        loops = [asyncio.create_task(loop.run(stop)) for loop in (self._collect, self._ship)]
        await self.send(WARM, 8 * MB)
        usage, begun = Usage(self._stack, bench=True), time.perf_counter()
        sent = await self.send(MEASURED, SIZE)
        seconds, cpu = time.perf_counter() - begun, usage.seconds()
        stop.set()
        await asyncio.gather(*loops)
        await self._channels.close()
        self._journal.close()
        return {"seconds": seconds, "bytes": sent, "cpu_s": cpu}

    def _hold(self, hold: bool) -> None:
        self.held = hold

    def _ticket(self, key: AttemptKey) -> bytes:
        ticket = self._signer.sign(
            run_id=key.run_id,
            token=key.token,
            incarnation="11111111-2222-4333-8444-555555555555",
            log_day=datetime.now(UTC).date(),
        )
        return ticket.SerializeToString()


def whole(stack: Stack, admin: AdminClient, folder: Path) -> dict[str, Any]:
    """A job that prints a file; the seconds from its start to the committed seal of its output."""
    text = folder / "text"
    size = write_text(text, SIZE, kind=KIND)
    text.read_bytes()
    admin.apply(job("bench-cat", ["/bin/cat", str(text)], logs={"max_mb": 0, "max_lines_per_second": 0}))
    usage = Usage(stack)
    [run_id] = admin.start("bench-cat")
    while not sql(stack, "SELECT 1 FROM logs.tokens WHERE run_id = %(run)s AND sealed_at IS NOT NULL", run=run_id):
        time.sleep(0.02)
    ended, cpu = time.time(), usage.seconds()
    run = admin.until_ended(run_id)
    assert run.state == "SUCCEEDED", run.state
    check(stack, run_id, size)
    begun = run.started_at.ToMicroseconds() / 1e6
    printed = run.finished_at.ToMicroseconds() / 1e6 - begun
    return {"seconds": ended - begun, "printed_s": round(printed, 3), "bytes": size, "cpu_s": cpu}


def check(stack: Stack, run_id: int, size: int) -> float:
    """Every byte is committed; the bytes that are stored for one byte of text."""
    [row] = sql(
        stack,
        "SELECT sum(raw_bytes)::bigint AS raw, sum(octet_length(data))::bigint AS data FROM logs.chunks WHERE run_id = %(run)s",
        run=run_id,
    )
    assert row["raw"] == size, f"{row['raw']} of {size} bytes are there"
    return float(row["data"] / row["raw"])


def print_figure(bench: str, name: str, found: dict[str, Any], **more: Any) -> None:
    """One figure; `cpu_s_a_gb` is what the way of the lines takes, without coordinators and servers beside it."""
    rate = found["bytes"] / MB / found["seconds"]
    cpu = sum(found["cpu_s"].get(role, 0.0) for role in ("bench", "executor", "log-archiver", "postgres"))
    more["cpu_s_a_gb"] = round(cpu / found["bytes"] * 1000 * MB, 1)
    about = {"bench": bench, "kind": KIND, "mb": round(found.pop("bytes") / MB), "load": os.getloadavg()[0]}
    found["seconds"] = round(found["seconds"], 3)
    print(json.dumps({**about, **found, **more, name: round(rate, 1)}), flush=True)


def main() -> None:
    """Both figures, on one stack."""
    with (
        whole_stack(executors=1, slots=2) as (stack, admin),
        temporary_folder("toban-bench-") as home,
    ):
        found = asyncio.run(Sender(stack, home).run())
        stored = check(stack, MEASURED.run_id, int(found["bytes"]))
        print_figure("log_ingest", "ingest_mb_per_s", found, data_bytes_a_text_byte=round(stored, 3))
        print_figure("log_end_to_end", "log_end_to_end_mb_per_s", whole(stack, admin, home))


if __name__ == "__main__":
    main()
