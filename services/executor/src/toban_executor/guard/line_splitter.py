"""Splits the output of a job into numbered lines, in blocks as large as the reads were."""

from collections.abc import Callable, Iterator

from toban_executor.decide.log_block import LogBlock

LINE_LIMIT = 16 * 1024
"""Bytes of one line; a longer one goes on in the next, and all its pieces but the last are `partial`."""

LAST_LINE_CHARS = 200


class LineNumbering:
    """Line numbers from 1 over both streams of one attempt, and its last line with text in it."""

    def __init__(self) -> None:
        self.last_seq = 0
        self._last = b""

    def reserve(self, count: int) -> int:
        """Reserve `count` numbers and return the first."""
        first = self.last_seq + 1
        self.last_seq += count
        return first

    def remember(self, line: bytes) -> None:
        """Keep `line` as the last one, unless it is blank."""
        if line.strip():
            self._last = line

    @property
    def last_line(self) -> str:
        """The last line with text, at most 200 characters, invalid bytes replaced."""
        return self._last[: LAST_LINE_CHARS * 4].decode(errors="replace").strip()[:LAST_LINE_CHARS]


class LineSplitter:
    """One stream of one attempt: bytes in, blocks of whole lines out."""

    def __init__(self, *, stream: int, numbering: LineNumbering, now_ns: Callable[[], int]) -> None:
        self._stream = stream
        self._numbering = numbering
        self._now_ns = now_ns
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[LogBlock]:
        """Add bytes; yields what became whole lines by them."""
        at_ns = self._now_ns()
        end = data.rfind(b"\n") + 1
        if end:
            body, self._rest = self._rest + data[:end], data[end:]
            yield from self._whole(body, at_ns)
        else:
            self._rest += data
        while len(self._rest) > LINE_LIMIT:
            piece, self._rest = self._rest[:LINE_LIMIT], self._rest[LINE_LIMIT:]
            yield self._block(piece, 1, at_ns, partial=True)

    def finish(self) -> Iterator[LogBlock]:
        """The stream ended: what is left without a newline is a partial line."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._numbering.remember(rest)
            yield self._block(rest, 1, self._now_ns(), partial=True)

    def _whole(self, body: bytes, at_ns: int) -> Iterator[LogBlock]:
        """Whole lines: those before the next one that is too long together, then the pieces of that one."""
        self._remember_last(body)
        start = 0
        while start < len(body):
            short = _short_until(body, start)
            if short > start:
                yield self._block(body[start:short], body.count(b"\n", start, short), at_ns)
            start = short
            if start < len(body):
                end = body.index(b"\n", start)
                while end - start > LINE_LIMIT:
                    yield self._block(body[start : start + LINE_LIMIT], 1, at_ns, partial=True)
                    start += LINE_LIMIT

    def _remember_last(self, body: bytes) -> None:
        """The last line with text in it: nearly always the last one."""
        end = len(body) - 1
        floor = max(0, len(body) - 4 * LINE_LIMIT)
        while end > floor:
            start = body.rfind(b"\n", floor, end) + 1 or floor
            line = body[start:end]
            if line.strip():
                self._numbering.remember(line)
                return
            end = start - 1

    def _block(self, text: bytes, count: int, at_ns: int, *, partial: bool = False) -> LogBlock:
        return LogBlock(
            stream=self._stream,
            partial=partial,
            at_ns=at_ns,
            seq_from=self._numbering.reserve(count),
            lines=count,
            text=text,
        )


def _short_until(body: bytes, start: int) -> int:
    """The end of the lines from `start` on that are within the limit; `body` ends with a newline."""
    while len(body) - start > LINE_LIMIT + 1:
        end = body.rfind(b"\n", start, start + LINE_LIMIT + 1) + 1
        if not end:
            return start
        start = end
    return len(body)
