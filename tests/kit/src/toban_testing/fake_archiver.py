"""A fake of the log-archiver's ingest, for tests of the executor."""

from collections.abc import AsyncIterator
from typing import Any

import zstandard

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import common_pb2, logs_pb2
from toban_proto.v1.logs_pb2_grpc import LogIngestServicer


class FakeArchiver(LogIngestServicer):
    """Keeps lines; a test can make it fail or refuse."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int, int], dict[int, tuple[int, bytes, bool]]] = {}
        self.seals: dict[tuple[int, int], int] = {}
        # First number of the chunk that each line came in.
        self.places: dict[tuple[int, int], dict[int, int]] = {}
        self.tickets: list[bytes] = []
        self.chunks = 0
        # Lines that came in two different chunks, which an archiver would store twice.
        self.doubled = 0
        self.down = False
        # Refuse every chunk and seal with this code.
        self.refusing = ""
        self.refused = 0

    async def Append(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Store and acknowledge."""
        known = set()
        async for request in requests:
            if self.down:
                raise TobanError(ErrorCode.UNAVAILABLE, "down")
            for ticket in request.tickets:
                self.tickets.append(ticket.body)
                known.add(ticket.body)
            if self.refusing:
                yield self._refuse(request)
                continue
            for chunk in request.chunks:
                assert known, "a chunk without any ticket on this stream"
                self.chunks += 1
                self._store(chunk)
            for seal in request.seals:
                self.seals[(seal.run_id, seal.token)] = seal.last_seq
            yield logs_pb2.AppendResponse(request_id=request.request_id)

    def _refuse(self, request: Any) -> Any:
        places = [(one.run_id, one.token, one.seq_from) for one in request.chunks]
        places += [(one.run_id, one.token, 0) for one in request.seals]
        self.refused += len(places)
        refusals = [
            logs_pb2.ChunkRefusal(
                key=common_pb2.AttemptKey(run_id=run, token=token), seq_from=seq_from, code=self.refusing
            )
            for run, token, seq_from in places
        ]
        return logs_pb2.AppendResponse(request_id=request.request_id, refusals=refusals)

    def _store(self, chunk: Any) -> None:
        stored = self.lines.setdefault((chunk.run_id, chunk.token), {})
        data = logs_pb2.LogLines.FromString(zstandard.ZstdDecompressor().decompress(chunk.data))
        found = [(seq, text, one.partial) for one in data.blocks for seq, text in enumerate(_texts(one), start=one.seq)]
        assert {one.stream for one in data.blocks} == {chunk.stream}
        assert (len(found), found[0][0], found[-1][0]) == (chunk.line_count, chunk.seq_from, chunk.seq_to)
        places = self.places.setdefault((chunk.run_id, chunk.token), {})
        for seq, text, partial in found:
            self.doubled += places.setdefault(seq, chunk.seq_from) != chunk.seq_from
            stored[seq] = (chunk.stream, text, partial)

    def text(self, key: tuple[int, int]) -> list[bytes]:
        """The lines of an attempt in order."""
        return [line for _, (_, line, _) in sorted(self.lines.get(key, {}).items())]


def _texts(block: Any) -> list[bytes]:
    """The lines of a block without their newlines."""
    return [block.text] if block.partial else block.text[:-1].split(b"\n")
