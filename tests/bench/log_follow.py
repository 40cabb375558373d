"""How long a line takes from the job that prints it to a client that follows the run: the line holds its time.

Usage: log_follow.py [LINES] [MILLISECONDS BETWEEN LINES...]; prints a JSON line for each pause. On the way are guard, executor with its
journal (fsync), log-archiver, PostgreSQL with fsync, NOTIFY, and the reader's stream.
"""

import asyncio
import json
import os
import statistics
import sys
import time

from bench_stack import job, whole_stack

from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.log_readers import read_ticket
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream
from toban_transport.tls import TlsFiles

LINES = int(sys.argv[1]) if len(sys.argv) > 1 else 100
PAUSES_MS = [int(text) for text in sys.argv[2:]] or [21, 210]
# What the first lines take (start of the follower) does not count.
WARM = 20
PROGRAM = """
import sys, time
for _ in range(int(sys.argv[1])):
    print(time.time_ns(), flush=True)
    time.sleep(int(sys.argv[2]) / 1000)
"""


async def follow(stack: Stack, run_id: int, lines: int, pause_ms: int) -> list[float]:
    """Milliseconds of each line."""
    pool = ChannelPool(tls=TlsFiles(stack.home.tls / "admin-cli"), trust_domain=TRUST_DOMAIN)
    stub = logs_pb2_grpc.LogReaderStub(pool.get(stack.log_archivers[0], "log-archiver"))
    request = logs_pb2.ReadLogRequest(
        run_id=run_id,
        follow=True,
        streams=[logs_pb2.LOG_STREAM_STDOUT],
        ticket=read_ticket(stack.home.tls, run_id),
    )
    found: list[float] = []
    async for answer in stream(stub.Read, request, timeout=lines * pause_ms / 1000 + 60):
        now = time.time_ns()
        found += [(now - int(line.text)) / 1e6 for line in answer.lines]
        if len(found) == lines:
            break
    await pool.close()
    return found


def measure(stack: Stack, admin: AdminClient, pause_ms: int) -> dict[str, float]:
    """One run, followed; milliseconds."""
    lines = WARM + LINES
    argv = [sys.executable, "-c", PROGRAM, str(lines), str(pause_ms)]
    admin.apply(job("bench-print", argv, allow_shell=True))
    [run_id] = admin.start("bench-print")
    found = sorted(asyncio.run(follow(stack, run_id, lines, pause_ms))[WARM:])
    cuts = statistics.quantiles(found, n=100, method="inclusive")
    times = {"p50_ms": statistics.median(found), "p99_ms": cuts[98], "max_ms": found[-1]}
    return {name: round(value, 1) for name, value in times.items()}


def main() -> None:
    """A run for each pause, on one stack."""
    with whole_stack(executors=1, slots=2) as (stack, admin):
        for pause_ms in PAUSES_MS:
            figure = {"bench": "log_follow", "lines": LINES, "pause_ms": pause_ms, "load": os.getloadavg()[0]}
            print(json.dumps({**figure, **measure(stack, admin, pause_ms)}), flush=True)


if __name__ == "__main__":
    main()
