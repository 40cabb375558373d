"""Chunks of an attempt's lines as values: where they are, how large they are, what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChunk:
    """A checked chunk: `data` is a zstd frame, times are the earliest and latest of its lines.

    `raw_bytes` is what the job wrote: the text with a newline for each line that is not partial.
    """

    log_day: date
    run_id: int
    token: int
    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    raw_bytes: int
    first_at: datetime
    last_at: datetime
    data: bytes

    @property
    def place(self) -> tuple[int, int, int, int]:
        """What identifies it: run, token, stream, first sequence number."""
        return self.run_id, self.token, self.stream, self.seq_from

    @property
    def range(self) -> tuple[int, int]:
        """What two chunks at one place must have in common: last sequence number and number of lines."""
        return self.seq_to, self.line_count


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """One chunk as it is read."""

    stream: int
    seq_from: int
    seq_to: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkHead:
    """A chunk without its lines; `raw_bytes` as in NewChunk."""

    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    raw_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A time from `since` on and before `until`; None is no bound."""

    since: datetime | None = None
    until: datetime | None = None


ALWAYS = TimeSpan()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPlace:
    """Where the chunks of one token are."""

    log_day: date
    run_id: int
    token: int

    @property
    def parameters(self) -> dict[str, date | int]:
        """The three values by name, for statements. A page of lines asks for them several times: `asdict` would copy each of them."""
        return {"log_day": self.log_day, "run_id": self.run_id, "token": self.token}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token as it is stored. `sealed_seconds` is None while it is open, else the time since the seal."""

    place: TokenPlace
    last_seq: int | None
    sealed_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSize:
    """What is stored of one token."""

    lines: int
    raw_bytes: int
    last_seq: int

    def __add__(self, other: TokenSize) -> TokenSize:
        """Of two parts of one token."""
        return TokenSize(
            lines=self.lines + other.lines,
            raw_bytes=self.raw_bytes + other.raw_bytes,
            last_seq=max(self.last_seq, other.last_seq),
        )
