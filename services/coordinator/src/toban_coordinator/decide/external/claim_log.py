"""Lines of an external worker as they are stored: numbered, redacted and limited as the output of jobs is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import LogSpec
from toban_domain.log_block import STDERR, STDOUT, SYSTEM, LogBlock
from toban_domain.log_limits import MIB, Limiter, LogLimits, Used
from toban_domain.output_redaction import masked, patterns, secret_values

MAX_LINES = 1000
MAX_BYTES = 256 * 1024
MAX_LINE_BYTES = 16 * 1024
# Far more lines than a worker can leave out.
MAX_GAP = 1_000_000_000
_STREAMS = {"stdout": STDOUT, "stderr": STDERR}


class SentLine(NamedTuple):
    """A line as its worker sends it; `at_ms` is in milliseconds since 1970, 0 = now."""

    text: str
    stream: str = "stdout"
    at_ms: int = 0


class LogSoFar(NamedTuple):
    """The number of the last line that was taken, and what the lines have used of the limits."""

    last_seq: int = 0
    used: Used = Used()

    @classmethod
    def of(cls, step: Any) -> LogSoFar:
        """Of the stored step of a claim."""
        if not isinstance(step, dict) or not step.get("seq_to"):
            return cls()
        return cls(step["seq_to"], Used(*step.get("log_used", ())))


@dataclass(frozen=True, slots=True)
class Part:
    """What is stored of a call, and how far the log is then."""

    blocks: Sequence[LogBlock]
    after: LogSoFar


def check_lines(first_seq: int, lines: Sequence[SentLine]) -> None:
    """Raises INVALID_ARGUMENT for what no log can have, or what is too much for one call."""
    if first_seq < 1:
        raise _wrong(f"first_seq is {first_seq}; lines are numbered from 1 on")
    if not 1 <= len(lines) <= MAX_LINES:
        raise _wrong(f"{len(lines)} lines in one call; send 1 to {MAX_LINES}")
    size = 0
    for number, line in enumerate(lines):
        if line.stream not in _STREAMS:
            raise _wrong(f"lines[{number}].stream is {line.stream[:50]!r}; use stdout or stderr")
        if "\n" in line.text:
            raise _wrong(f"lines[{number}].text has a newline; send each line by itself")
        if line.at_ms < 0 or line.at_ms > _YEAR_2200_MS:
            raise _wrong(f"lines[{number}].at_unix_ms is {line.at_ms}; use milliseconds since 1970, or 0")
        length = len(line.text.encode())
        if length > MAX_LINE_BYTES:
            raise _wrong(f"lines[{number}].text has {length} bytes, the limit is {MAX_LINE_BYTES}; split the line")
        size += length
    if size > MAX_BYTES:
        raise _wrong(f"{size} bytes of text in one call, the limit is {MAX_BYTES}; send fewer lines")


def part_of(
    first_seq: int, lines: Sequence[SentLine], before: LogSoFar, *, rules: LogSpec, payload_json: str, now: float
) -> Part | None:
    """What is stored of these lines at `now` (seconds since 1970); None when all of them were taken before. Raises INVALID_ARGUMENT."""
    lines = lines[max(0, before.last_seq + 1 - first_seq) :]
    if not lines:
        return None
    first_seq = max(first_seq, before.last_seq + 1)
    now_ns = int(now * 1_000_000_000)
    blocks: list[LogBlock] = []
    gap = first_seq - 1 - before.last_seq
    if gap > MAX_GAP:
        raise _wrong(f"first_seq is {first_seq} after a last line {before.last_seq}; number lines without gaps")
    if gap:
        words = f"… {gap:,} {'line' if gap == 1 else 'lines'}, left out by the worker"
        blocks.append(_own(words, first_seq - 1, now_ns))
    values = secret_values(rules.redact, env={}, payload_json=payload_json)[0] if rules.redact else ()
    limits = LogLimits(max_bytes=rules.max_mb * MIB, lines_per_second=rules.max_lines_per_second)
    limiter = Limiter(limits, before.used)
    for block in _blocks(first_seq, lines, patterns(values), now_ns):
        blocks += limiter.take(block, now)
    blocks += limiter.finish()
    return Part(blocks, LogSoFar(first_seq + len(lines) - 1, limiter.used))


def _blocks(first_seq: int, lines: Sequence[SentLine], forms: Sequence[bytes], now_ns: int) -> Iterable[LogBlock]:
    """Consecutive lines of one stream and time, in blocks."""
    numbered = enumerate(lines, start=first_seq)
    for (stream, at_ms), found in groupby(numbered, key=lambda one: (_STREAMS[one[1].stream], one[1].at_ms)):
        same = list(found)
        text = "".join(f"{_masked(line.text, forms)}\n" for _, line in same)
        at_ns = at_ms * 1_000_000 or now_ns
        yield LogBlock(stream, partial=False, at_ns=at_ns, seq_from=same[0][0], lines=len(same), text=text.encode())


def _masked(text: str, forms: Sequence[bytes]) -> str:
    return masked(text, forms) if forms else text


def _own(words: str, seq: int, at_ns: int) -> LogBlock:
    return LogBlock(SYSTEM, partial=False, at_ns=at_ns, seq_from=seq, lines=1, text=words.encode() + b"\n")


def _wrong(message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, message)


_YEAR_2200_MS = 7_258_118_400_000
