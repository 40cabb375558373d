"""How much of an attempt's output is kept: a budget of bytes, and lines a second.

What is left out is never silent: lines of the stream SYSTEM stand in its place and count it. Lines keep the numbers that they have in
the output, so a gap in the numbers is a line that was left out; such a line of ours takes the number of one of them. The last
lines before an end are kept whatever the limits say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from toban_domain.dropped_lines import dropped_lines_text
from toban_domain.log_block import SYSTEM, LogBlock

BURST_SECONDS = 10
"""So many seconds' worth of lines may come at once after a quiet time."""
GAP_SECONDS = 1.0
"""Lines over the rate are left out for this long at least, so that there is one line about it a second."""
TAIL_LINES = 200
TAIL_BYTES = 64 * 1024
MIB = 1 << 20


class LogLimits(NamedTuple):
    """Of one attempt, over all streams; 0 = no limit."""

    max_bytes: int = 0
    lines_per_second: int = 0


class Used(NamedTuple):
    """What an attempt has used of its limits: bytes of output, and lines that may still come at once at a moment (seconds)."""

    size: int = 0
    lines_left: float | None = None
    at: float | None = None


@dataclass(slots=True, kw_only=True)
class _Gap:
    """What is being left out since a limit was met. In `tail` are at least its last lines, which may still be kept."""

    budget: bool
    until: float
    lines: int = 0
    size: int = 0
    last_seq: int = 0
    last_ns: int = 0
    # The number of the line that said where the gap begins.
    said: int = 0
    tail: deque[LogBlock] = field(default_factory=deque)
    tail_lines: int = 0
    tail_size: int = 0


class Limiter:
    """Blocks in, blocks out. `left` counts what was left out for good: reason → (lines, bytes).

    With `used` it limits one part of an output, after the parts before it. No last lines are kept then: which part is the last is not known.
    """

    def __init__(self, limits: LogLimits, used: Used | None = None) -> None:
        self._limits = limits
        self._free = not limits.max_bytes and not limits.lines_per_second
        self._is_part = used is not None
        before = used or Used()
        self._used = before.size
        self._tokens = (
            float(limits.lines_per_second * BURST_SECONDS) if before.lines_left is None else before.lines_left
        )
        self._refilled: float | None = before.at
        self._gap: _Gap | None = None
        self.left: dict[str, tuple[int, int]] = {}

    @property
    def used(self) -> Used:
        """For the next part."""
        return Used(self._used, self._tokens, self._refilled)

    @property
    def has_gap(self) -> bool:
        """Whether something is being left out, so that `tick` may have something to do."""
        return self._gap is not None

    def take(self, block: LogBlock, now: float) -> list[LogBlock]:
        """What goes on by this block at `now` (seconds of a clock that never goes back)."""
        if self._free:
            return [block]
        out = self.tick(now)
        if self._gap is None:
            keep, budget = self._room(block, now)
            if keep == block.lines:
                self._spend(keep, len(block.text))
                return [*out, block]
            head, block = split(block, keep)
            if head is not None:
                self._spend(keep, len(head.text))
                out.append(head)
            self._gap = _Gap(budget=budget, until=now + GAP_SECONDS)
            if budget and not self._is_part:
                first, rest = split(block, 1)
                assert first is not None
                out.append(self._begin(self._gap, first))
                if rest.lines == 0:
                    return out
                block = rest
        self._leave_out(self._gap, block)
        return out

    def tick(self, now: float) -> list[LogBlock]:
        """Time has gone by: a gap for the rate's sake ends after a second, and its last lines are kept as far as both limits allow."""
        gap = self._gap
        if gap is None or gap.budget or now < gap.until:
            return []
        self._refill(now)
        left = self._limits.max_bytes - self._used if self._limits.max_bytes else TAIL_BYTES
        out = self._close(gap, int(self._tokens), min(TAIL_BYTES, left))
        self._spend(sum(block.lines for block in out if block.stream != SYSTEM), sum(len(block.text) for block in out))
        return out

    def finish(self) -> list[LogBlock]:
        """The attempt (or the part) is over: the last lines, after what was left out before them."""
        return [] if self._gap is None else self._close(self._gap, 0 if self._is_part else TAIL_LINES, TAIL_BYTES)

    def _room(self, block: LogBlock, now: float) -> tuple[int, bool]:
        """How many lines of the block are within both limits, and whether the budget is the narrower one."""
        lines = block.lines
        if self._limits.lines_per_second:
            self._refill(now)
            lines = min(lines, int(self._tokens))
        bytes_left = self._limits.max_bytes - self._used
        if not self._limits.max_bytes or len(block.text) <= bytes_left:
            return lines, False
        fitting = 0 if block.partial else block.text.count(b"\n", 0, max(0, bytes_left))
        return min(lines, fitting), fitting <= lines

    def _refill(self, now: float) -> None:
        rate = self._limits.lines_per_second
        passed = 0.0 if self._refilled is None else now - self._refilled
        self._refilled = now
        self._tokens = min(rate * BURST_SECONDS, self._tokens + passed * rate)

    def _spend(self, lines: int, size: int) -> None:
        self._tokens -= lines
        self._used += size

    def _begin(self, gap: _Gap, first: LogBlock) -> LogBlock:
        gap.lines, gap.size, gap.said = 1, len(first.text), first.seq_from
        gap.last_seq, gap.last_ns = first.seq_from, first.at_ns
        limit = f"{self._limits.max_bytes / MIB:g} MiB"
        words = f"… this line ({_size(gap.size)}) and what follows are left out, but for the last lines: more than {limit} (max_mb)"
        return _own(words, first.seq_from, first.at_ns)

    def _leave_out(self, gap: _Gap, block: LogBlock) -> None:
        gap.lines += block.lines
        gap.size += len(block.text)
        gap.last_seq, gap.last_ns = block.seq_from + block.lines - 1, block.at_ns
        gap.tail.append(block)
        gap.tail_lines += block.lines
        gap.tail_size += len(block.text)
        while gap.tail_lines - gap.tail[0].lines >= TAIL_LINES or gap.tail_size - len(gap.tail[0].text) >= TAIL_BYTES:
            oldest = gap.tail.popleft()
            gap.tail_lines -= oldest.lines
            gap.tail_size -= len(oldest.text)

    def _close(self, gap: _Gap, room: int, most_bytes: int) -> list[LogBlock]:
        """The end of a gap: at most `room` of its last lines and `most_bytes` of them, after the count of the others."""
        self._gap = None
        tail = _kept_tail(gap.tail, min(room, TAIL_LINES), most_bytes)
        lines, size = gap.lines - len(tail), gap.size - sum(len(line.text) for line in tail)
        if not lines:
            return tail
        reason = "budget" if gap.budget else "rate"
        before = self.left.get(reason, (0, 0))
        self.left[reason] = (before[0] + lines, before[1] + size)
        seq = tail[0].seq_from - 1 if tail else gap.last_seq
        if seq == gap.said:
            return tail
        words = dropped_lines_text(lines, size=_size(size), limit=self._limit(gap))
        return [_own(words, seq, tail[0].at_ns if tail else gap.last_ns), *tail]

    def _limit(self, gap: _Gap) -> str:
        if gap.budget:
            return f"{self._limits.max_bytes / MIB:g} MiB (max_mb)"
        return f"{self._limits.lines_per_second:,} lines a second (max_lines_per_second)"


def split(block: LogBlock, lines: int) -> tuple[LogBlock | None, LogBlock]:
    """The first `lines` of a block (None for no line), and the others (perhaps of no line)."""
    if lines <= 0:
        return None, block
    if block.partial or lines >= block.lines:
        return block, block._replace(seq_from=block.seq_from + block.lines, lines=0, text=b"")
    rest = block.text.split(b"\n", lines)[-1]
    head = block.text[: len(block.text) - len(rest)]
    return (
        block._replace(lines=lines, text=head),
        block._replace(seq_from=block.seq_from + lines, lines=block.lines - lines, text=rest),
    )


def _kept_tail(blocks: Iterable[LogBlock], lines: int, most_bytes: int) -> list[LogBlock]:
    """At most so many of the last lines, each alone, and not more than `most_bytes`."""
    found = [line for block in blocks for line in _last_lines(block, lines)][-lines:] if lines > 0 else []
    size = 0
    for place in range(len(found) - 1, -1, -1):
        size += len(found[place].text)
        if size > most_bytes:
            return found[place + 1 :]
    return found


def _last_lines(block: LogBlock, lines: int) -> list[LogBlock]:
    if block.partial:
        return [block]
    texts = block.text[:-1].rsplit(b"\n", lines)[-min(lines, block.lines) :]
    first = block.seq_from + block.lines - len(texts)
    return [block._replace(seq_from=seq, lines=1, text=text + b"\n") for seq, text in enumerate(texts, start=first)]


def _own(words: str, seq: int, at_ns: int) -> LogBlock:
    return LogBlock(stream=SYSTEM, partial=False, at_ns=at_ns, seq_from=seq, lines=1, text=words.encode() + b"\n")


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size // unit} {name}"
    return f"{size} byte" if size == 1 else f"{size} bytes"
