"""One Read call for lines: a position in each attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

from toban_log_archiver.app import attempt_selection
from toban_log_archiver.app.line_reader import BATCH_BYTES, BATCH_LINES, LiveLines, ReaderDeps, StoredLines, span_of
from toban_log_archiver.app.requests import ReadPart, ReadRequest
from toban_log_archiver.decide.gap_tracker import Prefix
from toban_log_archiver.decide.line import STREAMS, Line
from toban_log_archiver.decide.merge import END
from toban_log_archiver.decide.stored_chunks import TimeSpan, TokenRow
from toban_log_archiver.decide.tail import MAX_TAIL_BYTES, Last

# Chunk heads that are fetched at once.
HEADS = 500
# When a stretch before the end has too few wanted lines, the next one is larger by this.
STRETCH_GROWTH = 4


class RunReader:
    """The lines that a request wants, in order of attempts and then of sequence numbers."""

    def __init__(self, *, deps: ReaderDeps, request: ReadRequest) -> None:
        self._deps = deps
        self._source = deps.source
        self._request = request
        self._selection = request.selection
        # The first line of each attempt that is not wanted any more.
        self._end = request.to_seq + 1 if request.to_seq else END
        self._live: dict[int, LiveLines] = {}
        self._before_tail: set[int] = set()
        self._tail_left = request.tail
        self._head_left = request.head
        self.token = 0
        """The attempt that was read last."""
        self.at_end = False
        """With follow: every attempt so far is read to its sealed end."""
        self.done = False
        """Nothing more will be given."""

    async def available(self) -> AsyncIterator[ReadPart]:
        """Everything that is stored now and was not sent yet. Raises TobanError when a source does not answer."""
        rows = await attempt_selection.wanted(self._source, self._request)
        parts = self._tail(rows) if rows and self._tail_left else self._rest(rows)
        async for part in parts:
            self.token = part.token
            yield self._cut(part)
            if self.done:
                return
        last = self._live.get(rows[-1].place.token) if rows else None
        self.at_end = last is not None and attempt_selection.is_end(rows[-1], read_to=last.read_to)

    @property
    def read_to(self) -> int:
        """With follow: up to which line the attempt `token` was read."""
        return self._read_to(self.token)

    def _read_to(self, token: int) -> int:
        live = self._live.get(token)
        return 0 if live is None else live.read_to

    def _cut(self, part: ReadPart) -> ReadPart:
        """Counts the lines down to the end of a head."""
        if self._head_left:
            part = replace(part, lines=part.lines[: self._head_left], read_to=0)
            self._head_left -= len(part.lines)
            self.done = self._head_left == 0
        return part

    async def _rest(self, rows: Sequence[TokenRow]) -> AsyncIterator[ReadPart]:
        for row in rows:
            token = row.place.token
            if token in self._before_tail:
                continue
            if self._request.follow:
                reader = await self._live_lines(row)
                if row.last_seq is not None and reader.read_to >= row.last_seq:
                    continue
                batches = reader.batches(wait_for_gaps=attempt_selection.may_grow(row, rows))
            else:
                first = attempt_selection.first_seq(self._request, token)
                batches = self._stored_lines(row, first, self._end).batches()
            async for lines in batches:
                yield ReadPart(token=token, lines=lines, read_to=self._read_to(token))

    async def _tail(self, rows: Sequence[TokenRow]) -> AsyncIterator[ReadPart]:
        """The last lines over all wanted attempts, read backwards until there are enough."""
        left, size = self._tail_left, MAX_TAIL_BYTES
        self._tail_left = 0
        found: list[tuple[int, list[Line]]] = []
        for row in reversed(rows):
            if left <= 0 or size <= 0:
                self._before_tail.add(row.place.token)
                continue
            last = await self._last(row, lines=left, size=size, wait_for_gaps=attempt_selection.may_grow(row, rows))
            found.append((row.place.token, last.lines))
            left = 0 if last.full else last.missing
            size -= sum(len(line.text) for line in last.lines)
        for token, lines in reversed(found):
            for part in _parts_of(token, lines):
                yield part

    async def _last(self, row: TokenRow, *, lines: int, size: int, wait_for_gaps: bool) -> Last[Line]:
        """The last lines of one attempt, in stretches from its end to its beginning; with follow it is read on from there."""
        first = attempt_selection.first_seq(self._request, row.place.token)
        kept: Last[Line] = Last(lines=lines, size=size)
        stretch, end = lines, self._end
        while not kept.full and end > first:
            start = max(first, await self._stretch(row, before=end, lines=stretch))
            found: Last[Line] = Last(lines=lines, size=size)
            if end == END and self._request.follow:
                self._live[row.place.token] = live = self._new_live(row, start)
                batches = live.batches(wait_for_gaps=wait_for_gaps)
            else:
                batches = self._stored_lines(row, start, end).batches()
            async for batch in batches:
                found.add(batch)
            kept.add_before(found)
            stretch, end = stretch * STRETCH_GROWTH, start
        return kept

    async def _stretch(self, row: TokenRow, *, before: int, lines: int) -> int:
        """Where the chunks begin that hold at least so many lines before `before`; 1 when all of them together do not."""
        while True:
            heads = await self._source.heads(
                row.place, streams=sorted(self._selection.streams), before=before, size=min(HEADS, lines)
            )
            for head in heads:
                lines -= head.line_count
                before = head.seq_from
                if lines <= 0:
                    return before
            if not heads:
                return 1

    async def _live_lines(self, row: TokenRow) -> LiveLines:
        token = row.place.token
        if token not in self._live:
            first = attempt_selection.first_seq(self._request, token)
            self._live[token] = self._new_live(row, max(first, await self._first_in_span(row)))
        return self._live[token]

    async def _first_in_span(self, row: TokenRow) -> int:
        """A line before which none is missing and none is young enough: what is stored there need not be opened."""
        since = span_of(self._selection).since
        if since is None:
            return 1
        everything = dict.fromkeys(STREAMS, 0)
        young = await self._source.page(row.place, after=everything, size=1, span=TimeSpan(since=since))
        prefix = Prefix(before=young[0].seq_from if young else END)
        after, more = dict(everything), True
        while more and not prefix.done:
            heads = await self._source.heads_after(row.place, after=after, size=HEADS)
            prefix.add(heads)
            after |= {head.stream: head.seq_from for head in heads}
            more = len(heads) == HEADS
        return prefix.close()

    def _new_live(self, row: TokenRow, from_seq: int) -> LiveLines:
        return LiveLines(deps=self._deps, place=row.place, selection=self._selection, from_seq=from_seq)

    def _stored_lines(self, row: TokenRow, from_seq: int, to_seq: int) -> StoredLines:
        return StoredLines(
            deps=self._deps,
            place=row.place,
            selection=self._selection,
            from_seq=from_seq,
            to_seq=to_seq,
        )


def _parts_of(token: int, lines: Sequence[Line]) -> Iterator[ReadPart]:
    """Lines of one attempt that are in memory already, in parts of bounded size."""
    batch, size = list[Line](), 0
    for line in lines:
        if batch and (len(batch) >= BATCH_LINES or size + len(line.text) > BATCH_BYTES):
            yield ReadPart(token=token, lines=batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line.text)
    if batch:
        yield ReadPart(token=token, lines=batch)
