"""What readers ask: the lines of a run in order, live if wanted; what is stored of it; a search over many runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.app import attempt_selection
from toban_log_archiver.app.followers import Followers
from toban_log_archiver.app.line_reader import ReaderDeps
from toban_log_archiver.app.raw_reader import RawReader
from toban_log_archiver.app.requests import AttemptLog, ReadPart, ReadRequest, SearchPart, SearchRequest
from toban_log_archiver.app.run_reader import RunReader
from toban_log_archiver.app.search import LogSearch
from toban_log_archiver.decide.stored_chunks import TokenSize
from toban_observability import metrics
from toban_runtime.clock import Clock

# A follower reads again at least this often, should a notification get lost, seconds.
POLL_SECONDS = 2.0
# While nothing is found an empty part is given this often, seconds: the caller sees progress, and a caller that left is noticed.
EMPTY_PART_SECONDS = 5.0
_NOTHING = TokenSize(lines=0, raw_bytes=0, last_seq=0)

_lines = metrics.counter("toban_log_lines_read_total", "Lines sent to readers.")
_bytes = metrics.counter("toban_log_text_read_bytes_total", "Output bytes sent to readers.")


class LogReading:
    """Knows the attempts that have sent something, and nothing else of a run."""

    def __init__(self, *, deps: ReaderDeps, followers: Followers) -> None:
        self._deps = deps
        self._source = deps.source
        self._followers = followers

    async def read(self, request: ReadRequest) -> AsyncGenerator[ReadPart, None]:
        """Lines in order of attempts, then of sequence numbers. A run without lines gives none; with follow they are waited for.

        Raises TobanError UNAVAILABLE when this service stops while a caller follows, or when a source does not answer.
        """
        reader = (RawReader if request.raw else RunReader)(deps=self._deps, request=request)
        reported: dict[int, int] = {}
        clock, sent_at, sent_to = self._deps.clock, self._deps.clock.monotonic(), (0, 0)
        async for part in self._expired(request, reported):
            yield part
        with self._followers.follow(request.run_id) as event:
            while True:
                event.clear()
                async for part in drop_empty_responses(reader.available(), clock):
                    sent_at, sent_to = clock.monotonic(), (part.token, part.read_to)
                    yield part
                # Lines that the selection left out: a follower that opens its stream again need not have them read again.
                if clock.monotonic() - sent_at >= EMPTY_PART_SECONDS and (reader.token, reader.read_to) > sent_to:
                    sent_at, sent_to = clock.monotonic(), (reader.token, reader.read_to)
                    yield ReadPart(token=reader.token, read_to=reader.read_to)
                if reader.at_end or reader.done or not request.follow:
                    break
                if self._followers.stopping:
                    raise TobanError(ErrorCode.UNAVAILABLE, "this log-archiver stops: follow through another one")
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await event.wait()
        # Lines that expired while they were read were left out.
        async for part in self._expired(request, reported):
            yield part
        if reader.at_end:
            yield ReadPart(token=reader.token, at_end=True)

    async def describe(self, run_id: int) -> list[AttemptLog]:
        """Every attempt that has sent something, with what is stored of it and where. Raises TobanError when a source does not answer."""
        rows = await self._source.attempts(run_id)
        sizes = await self._source.sizes(run_id)
        places = await self._source.places(run_id)
        expired = await self._source.expired([run_id])
        found = []
        for row in rows:
            token = row.place.token
            size = sizes.get(token, _NOTHING)
            found.append(
                AttemptLog(
                    token=token,
                    lines=size.lines,
                    raw_bytes=size.raw_bytes,
                    last_seq=size.last_seq if row.last_seq is None else row.last_seq,
                    sealed=row.sealed_seconds is not None,
                    places=places.get(token, ()),
                    expired_lines=expired.get((run_id, token), 0),
                )
            )
        return found

    def search(self, request: SearchRequest) -> AsyncGenerator[SearchPart, None]:
        """Lines of many runs, in the order of run_ids; within a run as `read` gives them. Bounded work: the last part has the position.

        Raises TobanError UNAVAILABLE when a source does not answer.
        """
        return LogSearch(deps=self._deps, request=request).parts()

    async def _expired(self, request: ReadRequest, reported: dict[int, int]) -> AsyncGenerator[ReadPart, None]:
        """How many lines of the wanted attempts have expired, as far as `reported` (token → lines) does not have them; it is updated."""
        expired = await self._source.expired([request.run_id])
        if expired:
            for row in await attempt_selection.wanted(self._source, request):
                token = row.place.token
                lines = expired.get((request.run_id, token), 0)
                if lines > reported.get(token, 0):
                    reported[token] = lines
                    yield ReadPart(token=token, expired_lines=lines)


async def drop_empty_responses(parts: AsyncIterator[ReadPart], clock: Clock) -> AsyncGenerator[ReadPart, None]:
    """The parts that have something, and an empty one each EMPTY_PART_SECONDS."""
    given_at = clock.monotonic()
    async for part in parts:
        now = clock.monotonic()
        if part.lines or part.data or now - given_at >= EMPTY_PART_SECONDS:
            _lines.inc(len(part.lines))
            _bytes.inc(len(part.data) + sum(len(line.text) for line in part.lines))
            given_at = now
            yield part
