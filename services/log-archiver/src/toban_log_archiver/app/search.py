"""One Search call: lines of many runs for a bounded price, and where the next call goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import groupby

from toban_log_archiver.app.line_reader import ReaderDeps, StoredLines, span_of
from toban_log_archiver.app.requests import SearchHit, SearchPart, SearchPosition, SearchRequest
from toban_log_archiver.decide.merge import END
from toban_log_archiver.decide.stored_chunks import TokenPlace
from toban_observability import metrics

# What one call may cost before it is cut: text that is decompressed, and time. The caller goes on with the next call.
MAX_BYTES = 256 * 1024 * 1024
MAX_SECONDS = 10.0
# Runs whose attempts are read at once.
RUNS_PAGE = 100
# A search that finds nothing reports its position this often, seconds.
REPORT_SECONDS = 1.0

_searches = metrics.counter(
    "toban_log_searches_total",
    "Search calls by end: whole (all lines scanned), or the limit reached (lines, bytes, time).",
    ("end",),
)
_bytes = metrics.counter("toban_log_searched_bytes_total", "Uncompressed bytes scanned by Search calls.")


class LogSearch:
    """The lines that a request wants, as far as one call goes."""

    def __init__(self, *, deps: ReaderDeps, request: SearchRequest) -> None:
        self._deps = deps
        self._source = deps.source
        self._clock = clock = deps.clock
        self._selection = request.selection
        self._left = request.limit
        self._after = request.after
        run_ids = list(dict.fromkeys(request.run_ids))
        self._run_ids = run_ids[run_ids.index(self._after.run_id) :] if self._after else run_ids
        self._ends_at = clock.monotonic() + MAX_SECONDS
        self._position = self._after or SearchPosition()
        self._bytes = 0
        self._runs = 0
        self._expired = 0
        self._expired_of: Counter[int] = Counter()
        self._reported_at = clock.monotonic()

    async def parts(self) -> AsyncGenerator[SearchPart, None]:
        """Hits as they are found. The last part has the position, and why the search was cut if it was."""
        cut = ""
        for first in range(0, len(self._run_ids), RUNS_PAGE):
            page = self._run_ids[first : first + RUNS_PAGE]
            places = await self._source.touched(
                page, streams=sorted(self._selection.streams), span=span_of(self._selection)
            )
            by_run = {run_id: list(found) for run_id, found in groupby(places, key=lambda place: place.run_id)}
            self._expired_of = Counter(run_id for run_id, _ in await self._source.expired(page))
            async for part in self._page(page, by_run):
                yield part
            if cut := self._cut():
                break
        _searches.labels(cut or "whole").inc()
        yield self._part((), cut=cut)

    async def _page(
        self, run_ids: Sequence[int], places: Mapping[int, list[TokenPlace]]
    ) -> AsyncGenerator[SearchPart, None]:
        for run_id in run_ids:
            for place in places.get(run_id, ()):
                async for part in self._token(place):
                    yield part
                if self._cut():
                    return
            self._position = SearchPosition(run_id=run_id)
            self._runs += 1
            self._expired += self._expired_of[run_id]
            if self._clock.monotonic() - self._reported_at > REPORT_SECONDS:
                yield self._part(())
            if self._cut():
                return

    async def _token(self, place: TokenPlace) -> AsyncGenerator[SearchPart, None]:
        first = self._first_seq(place)
        if first > END - 1:
            return
        lines = StoredLines(
            deps=self._deps,
            place=place,
            selection=self._selection,
            from_seq=first,
            on_opened=self._count_bytes,
        )
        async for batch in lines.batches():
            hits = batch[: self._left]
            self._left -= len(hits)
            read_to = hits[-1].seq if hits and not self._left else lines.read_to
            self._position = SearchPosition(run_id=place.run_id, token=place.token, seq=read_to)
            if hits or self._clock.monotonic() - self._reported_at > REPORT_SECONDS:
                yield self._part([SearchHit(place.run_id, place.token, line) for line in hits])
            if self._cut():
                return

    def _first_seq(self, place: TokenPlace) -> int:
        """The first line of an attempt that no earlier call searched; END when all were searched."""
        after = self._after
        if after is None or place.run_id != after.run_id:
            return 1
        if not after.token or place.token < after.token:
            return END
        return 1 if place.token > after.token else min(END, after.seq + 1)

    def _count_bytes(self, size: int) -> None:
        self._bytes += size
        _bytes.inc(size)

    def _cut(self) -> str:
        """Why the call ends here; it never ends where it began."""
        if self._left <= 0:
            return "lines"
        if self._position == (self._after or SearchPosition()):
            return ""
        if self._bytes >= MAX_BYTES:
            return "bytes"
        return "time" if self._clock.monotonic() >= self._ends_at else ""

    def _part(self, hits: Sequence[SearchHit], *, cut: str = "") -> SearchPart:
        self._reported_at = self._clock.monotonic()
        return SearchPart(
            hits=hits,
            position=self._position,
            cut=cut,
            runs=self._runs,
            bytes=self._bytes,
            expired_attempts=self._expired,
        )
