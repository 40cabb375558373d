"""What becomes of new output when schema logs has used up its budget: it is left out, and a line counts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import zstandard

from toban_domain.log_marks import left_out_words
from toban_observability import metrics
from toban_proto.v1.logs_pb2 import LOG_STREAM_SYSTEM, LogLine, LogLines
from toban_store.logs.chunks import NewChunk

# A chunk of this size takes no more room than the line that would stand for it.
SMALL_BYTES = 512
_KIB = 1024

_lines = metrics.counter(
    "toban_log_budget_left_out_lines_total", "Lines that were left out since log_budget_db_gb was used up."
)
_bytes = metrics.counter(
    "toban_log_budget_left_out_bytes_total", "Bytes of text that were left out since log_budget_db_gb was used up."
)


class Budget:
    """`is_full` says whether the budget is used up now, `words` what it is."""

    def __init__(self, *, is_full: Callable[[], bool], words: Callable[[], str]) -> None:
        self._is_full = is_full
        self._words = words

    def take(self, chunk: NewChunk) -> NewChunk:
        """The chunk, or one line of the stream system with the number of its last line, which says how many lines it stands for."""
        if not self._is_full() or chunk.stream == LOG_STREAM_SYSTEM or len(chunk.data) <= SMALL_BYTES:
            return chunk
        _lines.inc(chunk.line_count)
        _bytes.inc(chunk.raw_bytes)
        size = f"{-(-chunk.raw_bytes // _KIB):,} KiB"
        text = left_out_words(
            chunk.line_count, size=size, limit=f"the database may hold of logs, {self._words()}"
        ).encode()
        nanos = int(chunk.last_at.timestamp() * 1_000_000) * 1000
        line = LogLine(seq=chunk.seq_to, at_unix_nanos=nanos, stream=LOG_STREAM_SYSTEM, text=text)
        return replace(
            chunk,
            stream=LOG_STREAM_SYSTEM,
            seq_from=chunk.seq_to,
            line_count=1,
            raw_bytes=len(text) + 1,
            first_at=chunk.last_at,
            data=zstandard.compress(LogLines(lines=[line]).SerializeToString()),
        )
