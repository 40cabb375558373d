"""One Read call for raw text: bytes of attempts as the job wrote them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from toban_log_archiver.app import attempt_selection
from toban_log_archiver.app.line_reader import LiveLines, ReaderDeps, StoredLines
from toban_log_archiver.app.requests import ReadPart, ReadRequest
from toban_log_archiver.decide.raw_text import Clip, Skip
from toban_log_archiver.decide.stored_chunks import TokenRow

HEADS = 1000


class RawReader:
    """The text that a request wants, attempt by attempt. Chunks before the first byte are skipped undecoded where that is possible."""

    def __init__(self, *, deps: ReaderDeps, request: ReadRequest) -> None:
        self._deps = deps
        self._source = deps.source
        self._request = request
        self._selection = request.selection
        self._positions: dict[int, tuple[StoredLines | LiveLines, Clip]] = {}
        self.token = 0
        """The attempt that was read last."""
        self.at_end = False
        """With follow: every attempt so far is read to its sealed end."""
        self.done = False
        """Nothing more will be given."""
        self.read_to = 0
        """Bytes have no line to continue after."""

    async def available(self) -> AsyncIterator[ReadPart]:
        """The text that is stored now and was not sent yet. Raises TobanError when a source does not answer."""
        rows = await attempt_selection.wanted(self._source, self._request)
        for row in rows:
            self.token = row.place.token
            lines, clip = await self._position(row)
            async for batch in lines.batches(wait_for_gaps=attempt_selection.may_grow(row, rows)):
                offset, data = clip.take(batch)
                yield ReadPart(token=self.token, data=data, byte_offset=offset)
                if clip.is_over:
                    break
            # A range of bytes names one attempt.
            self.done = clip.is_over
            self.at_end = isinstance(lines, LiveLines) and attempt_selection.is_end(row, read_to=lines.read_to)

    async def _position(self, row: TokenRow) -> tuple[StoredLines | LiveLines, Clip]:
        token = row.place.token
        if token not in self._positions:
            skip = await self._skipped(row)
            lines: StoredLines | LiveLines
            kind = LiveLines if self._request.follow else StoredLines
            lines = kind(deps=self._deps, place=row.place, selection=self._selection, from_seq=skip.seq)
            clip = Clip(offset=skip.offset, first=self._request.byte_from, last=self._request.byte_to or None)
            self._positions[token] = (lines, clip)
        return self._positions[token]

    async def _skipped(self, row: TokenRow) -> Skip:
        skip = Skip(byte=self._request.byte_from)
        after = dict.fromkeys(self._selection.streams, 0)
        more = self._request.byte_from > 0
        while more and not skip.done:
            heads = await self._source.heads_after(row.place, after=after, size=HEADS)
            more = len(heads) == HEADS
            skip.add(heads)
            for head in heads:
                after[head.stream] = head.seq_from
        return skip
