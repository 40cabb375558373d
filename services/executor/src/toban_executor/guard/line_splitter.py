"""Splits the output of a job into numbered lines, in blocks as large as the reads were."""

import re
from collections import deque
from collections.abc import Callable, Iterator

from toban_domain.log_block import STDERR, STDOUT, LogBlock
from toban_domain.outcome import ErrorLine

LINE_LIMIT = 16 * 1024
"""Bytes of one line; a longer one goes on in the next, and all its pieces but the last are `partial`."""

LAST_LINE_CHARS = 200
ERROR_LINES = 5
"""How many of the last lines a failed attempt keeps beside its log."""

# Of terminals, such as colours: these lines are read without one.
_CODES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")

TAIL_BYTES = 64 * 1024
"""Of each stream, what is kept to find them in; the last block is kept whole."""


class LineNumbering:
    """Line numbers from 1 over both streams of one attempt, and the last lines with text of each."""

    def __init__(self) -> None:
        self.last_seq = 0
        self._tails: dict[int, _Tail] = {}

    def reserve(self, count: int) -> int:
        """Reserve `count` numbers and return the first."""
        first = self.last_seq + 1
        self.last_seq += count
        return first

    def keep(self, block: LogBlock) -> None:
        """The last lines may be in this block, which is the newest of its stream."""
        if not block.text.isspace():
            tail = self._tails.get(block.stream)
            if tail is None:
                tail = self._tails[block.stream] = _Tail()
            tail.keep(block)

    @property
    def last_line(self) -> str:
        """The last line with text, at most 200 characters, invalid bytes replaced."""
        found = [line for tail in self._tails.values() for line in tail.last(1)]
        return max(found).text.strip() if found else ""

    def error_lines(self, since: int) -> tuple[ErrorLine, ...]:
        """The last lines of stderr from number `since` on, in order; those of stdout when it has none there."""
        for stream in (STDERR, STDOUT):
            if stream in self._tails and (found := self._tails[stream].last(ERROR_LINES, since)):
                return tuple(reversed(found))
        return ()


class _Tail:
    """The last blocks of one stream that have text."""

    def __init__(self) -> None:
        self._blocks: deque[LogBlock] = deque()
        self._bytes = 0

    def keep(self, block: LogBlock) -> None:
        self._blocks.append(block)
        self._bytes += len(block.text)
        while len(self._blocks) > 1 and self._bytes > TAIL_BYTES:
            self._bytes -= len(self._blocks.popleft().text)

    def last(self, count: int, since: int = 0) -> list[ErrorLine]:
        """The last `count` lines from number `since` on with text that is no marker, the last one first.

        A line that came in pieces is one, with the number of the first piece that is still here.
        """
        found: list[ErrorLine] = []
        rest = b""
        for index in range(len(self._blocks) - 1, -1, -1):
            block = self._blocks[index]
            lines = block.text.removesuffix(b"\n").split(b"\n")
            lines[-1] += rest
            rest = b""
            for offset in range(len(lines) - 1, -1, -1):
                if block.seq_from + offset < since:
                    return found
                if offset == 0 and index and self._blocks[index - 1].partial:
                    rest = lines[0]
                    break
                text = _CODES.sub(b"", lines[offset][: 8 * LAST_LINE_CHARS]).rstrip()
                if text.strip() and not (text.startswith(b"::") and text.endswith(b"::")):
                    shown = text[: LAST_LINE_CHARS * 4].decode(errors="replace")[:LAST_LINE_CHARS]
                    found.append(ErrorLine(block.seq_from + offset, shown))
                    if len(found) == count:
                        return found
        return found


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
            yield self._block(rest, 1, self._now_ns(), partial=True)

    def _whole(self, body: bytes, at_ns: int) -> Iterator[LogBlock]:
        """Whole lines: those before the next one that is too long together, then the pieces of that one."""
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

    def _block(self, text: bytes, count: int, at_ns: int, *, partial: bool = False) -> LogBlock:
        block = LogBlock(
            stream=self._stream,
            partial=partial,
            at_ns=at_ns,
            seq_from=self._numbering.reserve(count),
            lines=count,
            text=text,
        )
        self._numbering.keep(block)
        return block


def _short_until(body: bytes, start: int) -> int:
    """The end of the lines from `start` on that are within the limit; `body` ends with a newline."""
    while len(body) - start > LINE_LIMIT + 1:
        end = body.rfind(b"\n", start, start + LINE_LIMIT + 1) + 1
        if not end:
            return start
        start = end
    return len(body)
