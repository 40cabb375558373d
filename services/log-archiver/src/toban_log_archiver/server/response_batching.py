"""Answers of a Read call: bounded in size, and seldom empty."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from toban_log_archiver.server.line_reader import BATCH_BYTES, BATCH_LINES
from toban_observability import metrics
from toban_proto.v1.logs_pb2 import LogLine, ReadLogResponse
from toban_runtime.clock import Clock

# A search that finds nothing says so this often, seconds: the caller sees that it goes on, and one that left is noticed.
LIFE_SECONDS = 5.0

_lines = metrics.counter("toban_log_lines_read_total", "Lines sent to readers.")
_bytes = metrics.counter("toban_log_text_read_bytes_total", "Output bytes sent to readers.")


def packed(token: int, lines: Sequence[LogLine]) -> Iterator[ReadLogResponse]:
    """Lines of one attempt that are held already."""
    batch, size = list[LogLine](), 0
    for line in lines:
        if batch and (len(batch) >= BATCH_LINES or size + len(line.text) > BATCH_BYTES):
            yield ReadLogResponse(token=token, lines=batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line.text)
    if batch:
        yield ReadLogResponse(token=token, lines=batch)


async def worth_sending(answers: AsyncIterator[ReadLogResponse], clock: Clock) -> AsyncIterator[ReadLogResponse]:
    """The answers that have something, and an empty one now and then."""
    spoke = clock.monotonic()
    async for answer in answers:
        now = clock.monotonic()
        if answer.lines or answer.data or now - spoke >= LIFE_SECONDS:
            _lines.inc(len(answer.lines))
            _bytes.inc(len(answer.data) + sum(len(line.text) for line in answer.lines))
            spoke = now
            yield answer
