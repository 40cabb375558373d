"""Reads the stored lines of one attempt in order, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from toban_log_archiver.app.dropped_lines import drop_records
from toban_log_archiver.decide.dropped_lines import drop_record
from toban_log_archiver.decide.gap_tracker import GapTracker
from toban_log_archiver.decide.line import STREAMS, SYSTEM, Line
from toban_log_archiver.decide.line_filter import Selection
from toban_log_archiver.decide.merge import END, Merge
from toban_log_archiver.decide.stored_chunks import ALWAYS, StoredChunk, TimeSpan, TokenPlace
from toban_log_archiver.ports.chunk_codec import ChunkCodec
from toban_log_archiver.ports.chunk_source import ChunkSource
from toban_observability import metrics
from toban_runtime.clock import Clock

PAGE_CHUNKS = 8
"""Compressed chunks that a reader holds; of each stream one is open besides."""
BATCH_LINES = 1000
BATCH_BYTES = 256 * 1024
# A search yields an empty batch after this time without a line, and can be ended there, seconds.
QUIET_SECONDS = 1.0
# Pages whose text is below this are opened in place, the others in a thread: other readers and senders do not wait.
INLINE_BYTES = 16 * 1024
# Chunks of the stream system that a follower reads ahead when it has reached a gap.
RECORDS_AHEAD = 64
# Expressions are matched in threads of their own, one slice of at most QUIET_SECONDS after the other: a search does not keep other
# callers from reading and writing, and searches take turns.
SEARCH_THREADS = 2

_searchers = ThreadPoolExecutor(max_workers=SEARCH_THREADS, thread_name_prefix="toban-search")
_search_seconds = metrics.histogram("toban_log_search_slice_seconds", "Duration of one slice of a search.")
_gaps_skipped = metrics.counter(
    "toban_log_holes_passed_total", "Gaps in an attempt's lines that a follow stream skipped."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderDeps:
    """What readers work with."""

    source: ChunkSource
    codec: ChunkCodec
    clock: Clock


class _Pages:
    """A position in one attempt's chunks that moves on."""

    def __init__(self, *, source: ChunkSource, place: TokenPlace, streams: Sequence[int], span: TimeSpan) -> None:
        self._source = source
        self._place = place
        self._streams = streams
        self._span = span
        self._after: dict[int, int] | None = None

    async def next(self, from_seq: int) -> Sequence[StoredChunk]:
        """The next chunks; the first ones hold `from_seq`, or what comes after it."""
        if self._after is None:
            starts: Mapping[int, int] = {}
            if from_seq > 1:
                starts = await self._source.starts(self._place, seq=from_seq)
            self._after = {stream: starts.get(stream, 1) - 1 for stream in self._streams}
        page = await self._source.page(self._place, after=self._after, size=PAGE_CHUNKS, span=self._span)
        for chunk in page:
            self._after[chunk.stream] = chunk.seq_from
        return page

    def rewind(self) -> None:
        """The next call begins at its `from_seq` again."""
        self._after = None


async def _batches(
    pages: _Pages,
    merge: Merge[Line],
    from_seq: int,
    take: Callable[[Iterator[Line]], _Taken],
    *,
    opened_size: Callable[[bytes], int],
    costly: bool,
) -> AsyncIterator[_Taken]:
    """What `take` makes of the lines that are stored now, until one result is `over`."""
    more, inline = True, not costly
    while more:
        page = await pages.next(from_seq)
        more = len(page) == PAGE_CHUNKS
        for chunk in page:
            merge.add(chunk.stream, chunk.data)
        horizon = page[-1].seq_from if more else END
        ready = merge.ready(horizon)
        # What is left of a large page is opened with the next one.
        inline = inline and sum(opened_size(chunk.data) for chunk in page) < INLINE_BYTES
        while True:
            if costly:
                taken = await asyncio.get_running_loop().run_in_executor(_searchers, _timed(take), ready)
            else:
                taken = take(ready) if inline else await asyncio.to_thread(take, ready)
            taken.horizon = horizon
            yield taken
            if taken.over:
                return
            if taken.used_up:
                break


def _timed(take: Callable[[Iterator[Line]], _Taken]) -> Callable[[Iterator[Line]], _Taken]:
    def timed(ready: Iterator[Line]) -> _Taken:
        with _search_seconds.time():
            return take(ready)

    return timed


class _Taken:
    """Lines for one answer. `used_up`: the page has no more, which went as far as `horizon`; `over`: this reading has no more."""

    __slots__ = ("horizon", "lines", "over", "size", "used_up")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.size = 0
        self.used_up = False
        self.over = False
        self.horizon = 0

    def add(self, line: Line) -> bool:
        """True when the answer is full."""
        self.lines.append(line)
        self.size += len(line.text)
        return len(self.lines) >= BATCH_LINES or self.size >= BATCH_BYTES


class StoredLines:
    """The wanted lines [from_seq, to_seq) of an attempt as they are stored now, once. Chunks without such lines are not even opened.

    `on_opened` gets the decompressed size of each chunk that was, perhaps in another thread.
    """

    def __init__(
        self,
        *,
        deps: ReaderDeps,
        place: TokenPlace,
        selection: Selection,
        from_seq: int = 1,
        to_seq: int = END,
        on_opened: Callable[[int], None] = lambda _size: None,
    ) -> None:
        streams = sorted(selection.streams)
        cheap, self._expression = selection.parts
        self._pages = _Pages(source=deps.source, place=place, streams=streams, span=span_of(selection))
        self._deps = deps
        self._from_seq = max(1, from_seq)
        self._to_seq = to_seq
        decode = partial(deps.codec.selected, selection=cheap, on_opened=on_opened)
        self._merge: Merge[Line] = Merge(decode=decode, from_seq=self._from_seq)
        self.read_to = self._from_seq - 1
        """Every line up to this one was read; END when there is no other."""

    async def batches(self, *, wait_for_gaps: bool = False) -> AsyncIterator[list[Line]]:
        """In order; an empty one shows that reading goes on. Raises TobanError when a source does not answer. Nothing is waited for."""
        del wait_for_gaps
        costly, size = self._expression is not None, self._deps.codec.opened_size
        async for taken in _batches(
            self._pages, self._merge, self._from_seq, self._take, opened_size=size, costly=costly
        ):
            if taken.used_up:
                self.read_to = max(self.read_to, taken.horizon)
            yield taken.lines

    def _take(self, ready: Iterator[Line]) -> _Taken:
        taken = _Taken()
        quiet_until = self._deps.clock.monotonic() + QUIET_SECONDS
        for line in ready:
            if line.seq >= self._to_seq:
                taken.over = True
                return taken
            self.read_to = line.seq
            wanted = self._expression is None or self._expression.matches(line.text)
            if (wanted and taken.add(line)) or self._deps.clock.monotonic() > quiet_until:
                return taken
        taken.used_up = True
        return taken


class LiveLines:
    """The wanted lines of an attempt from `from_seq` on, each once and in order, while chunks arrive in any order.

    All streams are read, since only together they have no gaps. No database connection is held while lines are given out.
    """

    def __init__(self, *, deps: ReaderDeps, place: TokenPlace, selection: Selection, from_seq: int = 1) -> None:
        self._deps = deps
        self._place = place
        self._pages = _Pages(source=deps.source, place=place, streams=sorted(STREAMS), span=ALWAYS)
        self._selection = selection
        self._gaps = GapTracker(next_seq=max(1, from_seq))
        self._merge = self._new_merge()

    @property
    def read_to(self) -> int:
        """Every line up to this one was read or skipped."""
        return self._gaps.next_seq - 1

    async def batches(self, *, wait_for_gaps: bool) -> AsyncIterator[list[Line]]:
        """What is stored now and was not given out yet. Call again for what came later. Raises TobanError as StoredLines does.

        With `wait_for_gaps` it stops at a gap, until its lines come or its time is over.
        """
        again = True
        while again:
            again = False
            async for taken in self._stored(wait_for_gaps=wait_for_gaps):
                yield taken.lines
                again = taken.over and await self._records_ahead()

    async def _stored(self, *, wait_for_gaps: bool) -> AsyncIterator[_Taken]:
        """What is stored now, up to a gap."""
        before = self._gaps.skipped
        take = partial(self._take, wait_for_gaps=wait_for_gaps)
        costly, size = self._selection.parts[1] is not None, self._deps.codec.opened_size
        async for taken in _batches(
            self._pages, self._merge, self._gaps.next_seq, take, opened_size=size, costly=costly
        ):
            if taken.over:
                self._pages.rewind()
                self._merge = self._new_merge()
            _gaps_skipped.inc(self._gaps.skipped - before)
            before = self._gaps.skipped
            yield taken

    async def _records_ahead(self) -> bool:
        """True when records of dropped lines were found behind a gap that explain more of it."""
        after: dict[int, int] = {SYSTEM: self._gaps.next_seq - 1}
        page = await self._deps.source.page(self._place, after=after, size=RECORDS_AHEAD, span=ALWAYS)
        codec = self._deps.codec
        records = await asyncio.to_thread(lambda: [one for chunk in page for one in drop_records(codec, chunk.data)])
        return self._gaps.expect(records)

    def _take(self, ready: Iterator[Line], *, wait_for_gaps: bool) -> _Taken:
        taken = _Taken()
        now = self._deps.clock.monotonic()
        for line in ready:
            if not self._gaps.admits(drop_record(line), wait=wait_for_gaps, now=now):
                taken.over = True
                return taken
            if self._selection.keeps(line) and taken.add(line):
                return taken
            if self._deps.clock.monotonic() > now + QUIET_SECONDS:
                return taken
        taken.used_up = True
        return taken

    def _new_merge(self) -> Merge[Line]:
        return Merge(decode=self._deps.codec.lines, from_seq=self._gaps.next_seq)


def span_of(selection: Selection) -> TimeSpan:
    """The times that a chunk must touch."""
    return TimeSpan(since=_time(selection.since_nanos), until=_time(selection.until_nanos, up=True))


def _time(nanos: int | None, *, up: bool = False) -> datetime | None:
    """Chunks have their times in microseconds, cut off."""
    if nanos is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanos // 1000 + up)
