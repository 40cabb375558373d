"""Reads the stored lines of one attempt in order, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

from toban_domain.dropped_lines import dropped_line_count, is_database_drop
from toban_log_archiver.decide.chunk_validation import STREAMS
from toban_log_archiver.decide.dropped_lines import Mark
from toban_log_archiver.decide.gap_tracker import Holes
from toban_log_archiver.decide.line_filter import Selection
from toban_log_archiver.decide.merge import END, Merge
from toban_log_archiver.ports.chunk_source import ChunkSource
from toban_log_archiver.server.chunk_codec import count_marks, lines_of, opened_size, selected
from toban_log_archiver.store.chunks import ALWAYS, StoredChunk, TimeSpan, TokenPlace
from toban_observability import metrics
from toban_proto.v1.logs_pb2 import LOG_STREAM_SYSTEM, LogLine
from toban_runtime.clock import Clock

PAGE_CHUNKS = 8
"""Compressed chunks that a reader holds; of each stream one is open besides."""
BATCH_LINES = 1000
BATCH_BYTES = 256 * 1024
# A search gives a sign of life after this time without a line, and can be ended there, seconds.
QUIET_SECONDS = 1.0
# Pages whose text is below this are opened in place, the others in a thread: other readers and senders do not wait.
INLINE_BYTES = 16 * 1024
# Chunks of the stream system that a follower looks at when it stands before a hole.
MARKS_AHEAD = 64
# Expressions are looked for in threads of their own, one slice of at most QUIET_SECONDS after the other: whoever searches does not
# keep others from reading and writing, and searches take turns.
SEARCH_THREADS = 2

_searchers = ThreadPoolExecutor(max_workers=SEARCH_THREADS, thread_name_prefix="toban-search")
_search_seconds = metrics.histogram("toban_log_search_slice_seconds", "Duration of one slice of a search.")
_holes = metrics.counter("toban_log_holes_passed_total", "Gaps in an attempt's lines that a follow stream skipped.")


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
        """Begins anew at the next call."""
        self._after = None


async def _batches(
    pages: _Pages,
    merge: Merge[LogLine],
    from_seq: int,
    take: Callable[[Iterator[LogLine]], _Taken],
    *,
    costly: bool,
) -> AsyncIterator[_Taken]:
    """What `take` makes of the lines that are stored now, until it says that it is over."""
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


def _timed(take: Callable[[Iterator[LogLine]], _Taken]) -> Callable[[Iterator[LogLine]], _Taken]:
    def timed(ready: Iterator[LogLine]) -> _Taken:
        with _search_seconds.time():
            return take(ready)

    return timed


class _Taken:
    """Lines for one answer. `used_up`: the page has no more, which went as far as `horizon`; `over`: this reading has no more."""

    __slots__ = ("horizon", "lines", "over", "size", "used_up")

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.size = 0
        self.used_up = False
        self.over = False
        self.horizon = 0

    def add(self, line: LogLine) -> bool:
        """True when the answer is full."""
        self.lines.append(line)
        self.size += len(line.text)
        return len(self.lines) >= BATCH_LINES or self.size >= BATCH_BYTES


class StoredLines:
    """The wanted lines [from_seq, to_seq) of an attempt as they are stored now, once. Chunks without such lines are not even opened.

    `opened` hears the bytes of each chunk that was, perhaps from another thread.
    """

    def __init__(
        self,
        *,
        source: ChunkSource,
        place: TokenPlace,
        selection: Selection,
        clock: Clock,
        from_seq: int = 1,
        to_seq: int = END,
        opened: Callable[[int], None] = lambda _: None,
    ) -> None:
        streams = sorted(selection.streams)
        cheap, self._expression = selection.parts
        self._pages = _Pages(source=source, place=place, streams=streams, span=span_of(selection))
        self._clock = clock
        self._from_seq = max(1, from_seq)
        self._to_seq = to_seq
        decode = partial(selected, selection=cheap, opened=opened)
        self._merge: Merge[LogLine] = Merge(decode=decode, from_seq=self._from_seq)
        self.read_to = self._from_seq - 1
        """Every line up to this one was looked at; END when there is no other."""

    async def batches(self, *, patient: bool = False) -> AsyncIterator[list[LogLine]]:
        """In order; an empty one is a sign of life. Raises TobanError when a source cannot be asked. Nothing is waited for."""
        del patient
        costly = self._expression is not None
        async for taken in _batches(self._pages, self._merge, self._from_seq, self._take, costly=costly):
            if taken.used_up:
                self.read_to = max(self.read_to, taken.horizon)
            yield taken.lines

    def _take(self, ready: Iterator[LogLine]) -> _Taken:
        taken = _Taken()
        quiet_until = self._clock.monotonic() + QUIET_SECONDS
        for line in ready:
            if line.seq >= self._to_seq:
                taken.over = True
                return taken
            self.read_to = line.seq
            wanted = self._expression is None or self._expression.matches(line.text)
            if (wanted and taken.add(line)) or self._clock.monotonic() > quiet_until:
                return taken
        taken.used_up = True
        return taken


class LiveLines:
    """The wanted lines of an attempt from `from_seq` on, each once and in order, while chunks arrive in any order.

    All streams are read, since only together they have no gaps. No database connection is held while lines are given out.
    """

    def __init__(
        self, *, source: ChunkSource, place: TokenPlace, selection: Selection, clock: Clock, from_seq: int = 1
    ) -> None:
        self._source = source
        self._place = place
        self._pages = _Pages(source=source, place=place, streams=sorted(STREAMS), span=ALWAYS)
        self._selection = selection
        self._clock = clock
        self._holes = Holes(next_seq=max(1, from_seq))
        self._merge = self._new_merge()

    @property
    def read_to(self) -> int:
        """Every line up to this one was looked at, or passed over."""
        return self._holes.next_seq - 1

    async def batches(self, *, patient: bool) -> AsyncIterator[list[LogLine]]:
        """What is stored now and was not given out yet. Call again for what came later. Raises TobanError as StoredLines does.

        With patience it stops at a hole, which is waited for.
        """
        again = True
        while again:
            again = False
            async for taken in self._stored(patient=patient):
                yield taken.lines
                again = taken.over and await self._marks_ahead()

    async def _stored(self, *, patient: bool) -> AsyncIterator[_Taken]:
        """What is stored now, up to a hole."""
        before = self._holes.passed_over
        take = partial(self._take, patient=patient)
        costly = self._selection.parts[1] is not None
        async for taken in _batches(self._pages, self._merge, self._holes.next_seq, take, costly=costly):
            if taken.over:
                self._pages.rewind()
                self._merge = self._new_merge()
            _holes.inc(self._holes.passed_over - before)
            before = self._holes.passed_over
            yield taken

    async def _marks_ahead(self) -> bool:
        """True when marks behind a hole were found that say something new of its lines."""
        after: dict[int, int] = {LOG_STREAM_SYSTEM: self._holes.next_seq - 1}
        page = await self._source.page(self._place, after=after, size=MARKS_AHEAD, span=ALWAYS)
        marks = await asyncio.to_thread(lambda: [mark for chunk in page for mark in count_marks(chunk.data)])
        return self._holes.expect(marks)

    def _take(self, ready: Iterator[LogLine], *, patient: bool) -> _Taken:
        taken = _Taken()
        now = self._clock.monotonic()
        for line in ready:
            mark = Mark(line.seq, 0)
            if line.stream == LOG_STREAM_SYSTEM:
                mark = Mark(line.seq, dropped_line_count(line.text), is_database_drop(line.text))
            if not self._holes.passes(mark, patient=patient, now=now):
                taken.over = True
                return taken
            if self._selection.keeps(line) and taken.add(line):
                return taken
            if self._clock.monotonic() > now + QUIET_SECONDS:
                return taken
        taken.used_up = True
        return taken

    def _new_merge(self) -> Merge[LogLine]:
        return Merge(decode=lines_of, from_seq=self._holes.next_seq)


def span_of(selection: Selection) -> TimeSpan:
    """The times that a chunk must touch."""
    return TimeSpan(since=_time(selection.since_nanos), until=_time(selection.until_nanos, up=True))


def _time(nanos: int | None, *, up: bool = False) -> datetime | None:
    """Chunks have their times in microseconds, cut off."""
    if nanos is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanos // 1000 + up)
