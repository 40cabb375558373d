"""One Read call for raw text: bytes of attempts as the job wrote them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from toban_log_archiver.decide.line_filter import Selection
from toban_log_archiver.decide.raw_text import Clip, Skip
from toban_log_archiver.ports.chunk_source import ChunkSource
from toban_log_archiver.server import attempt_selection
from toban_log_archiver.server.line_reader import LiveLines, StoredLines
from toban_log_archiver.store.log_attempts import TokenRow
from toban_proto.v1.logs_pb2 import ReadLogRequest, ReadLogResponse
from toban_runtime.clock import Clock

HEADS = 1000


class RawReading:
    """The text that a request wants, attempt by attempt. Chunks before the first byte are passed over unopened where that can be."""

    def __init__(self, *, source: ChunkSource, clock: Clock, request: ReadLogRequest, selection: Selection) -> None:
        self._source = source
        self._clock = clock
        self._request = request
        self._selection = selection
        self._positions: dict[int, tuple[StoredLines | LiveLines, Clip]] = {}
        self.token = 0
        """The attempt that was read last."""
        self.at_end = False
        """With follow: every attempt so far is read to its sealed end."""
        self.done = False
        """Nothing more will be given."""

    async def available(self) -> AsyncIterator[ReadLogResponse]:
        """The text that is stored now and was not sent yet. Raises TobanError when a source cannot be asked."""
        rows = await attempt_selection.wanted(self._source, self._request)
        for row in rows:
            self.token = row.place.token
            lines, clip = await self._position(row)
            async for batch in lines.batches(patient=attempt_selection.may_grow(row, rows)):
                offset, data = clip.take(batch)
                yield ReadLogResponse(token=self.token, data=data, byte_offset=offset)
                if clip.is_over:
                    break
            # Bytes are asked for in one attempt only.
            self.done = clip.is_over
            self.at_end = isinstance(lines, LiveLines) and attempt_selection.is_end(row, read_to=lines.read_to)

    async def _position(self, row: TokenRow) -> tuple[StoredLines | LiveLines, Clip]:
        token = row.place.token
        if token not in self._positions:
            skip = await self._skipped(row)
            lines: StoredLines | LiveLines
            kind = LiveLines if self._request.follow else StoredLines
            lines = kind(
                source=self._source,
                place=row.place,
                selection=self._selection,
                clock=self._clock,
                from_seq=skip.seq,
            )
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
