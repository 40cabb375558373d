"""Reading against a model: a run is a list of lines; whatever their chunks, places and arrivals, a reader gets what the list says."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.app.combined_source import CombinedSource
from toban_log_archiver.app.line_reader import ReaderDeps
from toban_log_archiver.app.raw_reader import RawReader
from toban_log_archiver.app.requests import ReadRequest
from toban_log_archiver.app.run_reader import RunReader
from toban_log_archiver.decide.stored_chunks import NewChunk
from toban_log_archiver.server.request_validation import read_request
from toban_proto.v1.logs_pb2 import LogLine, ReadLogRequest
from toban_testing.clock import FakeClock
from toban_testing.memory_chunk_source import MemoryChunks, new_chunk

RUN = 5
NANOS = 1_800_000_000_000_000_000
LEVELS = {"trace": 1, "debug": 2, "info": 3, "warning": 4, "error": 5, "fatal": 6}
TEXTS = [b"", b"ok", b"error: disk", b"an ERROR", b"\xff\xfe", b"disk full 42"]


@st.composite
def attempts(draw: st.DrawFn) -> dict[int, list[LogLine]]:
    """Lines by token. Clocks of jobs may be set back."""
    found: dict[int, list[LogLine]] = {}
    for token in draw(st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)):
        kinds = draw(
            st.lists(
                st.tuples(
                    st.integers(1, 3),
                    st.integers(0, 40),
                    st.sampled_from(TEXTS),
                    st.sampled_from(["", *LEVELS]),
                    st.booleans(),
                ),
                max_size=25,
            )
        )
        found[token] = [
            LogLine(
                seq=seq, stream=stream, at_unix_nanos=NANOS + second * 10**9, text=text, level=level, partial=partial
            )  # type: ignore[arg-type]
            for seq, (stream, second, text, level, partial) in enumerate(kinds, start=1)
        ]
    return found


@st.composite
def chunked(draw: st.DrawFn, lines: list[LogLine], token: int) -> list[NewChunk]:
    """The lines of an attempt in chunks of one stream each."""
    chunks: list[NewChunk] = []
    for stream in (1, 2, 3):
        mine = [line for line in lines if line.stream == stream]
        while mine:
            size = draw(st.integers(1, 6))
            chunks.append(new_chunk(RUN, token, mine[:size]))
            mine = mine[size:]
    return chunks


@dataclass
class Asked:
    """A question, and which lines of the model it is about."""

    fields: dict[str, Any] = field(default_factory=dict)

    def keeps(self, token: int, line: LogLine) -> bool:
        fields = self.fields
        at = line.at_unix_nanos
        return (
            (not fields.get("tokens") or token in fields["tokens"])
            and (not fields.get("streams") or line.stream in fields["streams"])
            and (not fields.get("level") or LEVELS.get(line.level, 0) >= LEVELS[fields["level"]])
            and ("since" not in fields or at >= fields["since"])
            and ("until" not in fields or at < fields["until"])
            and fields.get("grep", "").encode() in line.text
            and ("after" not in fields or (token, line.seq) > fields["after"])
            and line.seq >= fields.get("from_seq", 1)
            and line.seq <= fields.get("to_seq", line.seq)
        )

    def request(self, **more: Any) -> ReadRequest:
        fields = {name: value for name, value in self.fields.items() if name not in ("since", "until", "after")}
        request = ReadLogRequest(run_id=RUN, **fields, **more)
        for name in ("since", "until"):
            if name in self.fields:
                getattr(request, name).FromNanoseconds(self.fields[name])
        if "after" in self.fields:
            request.after.token, request.after.seq = self.fields["after"]
        return read_request(request)


def some(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(st.just({}), values.map(lambda value: {name: value}))


FILTERS = st.tuples(
    some("streams", st.lists(st.integers(1, 3), min_size=1, max_size=2, unique=True)),
    some("level", st.sampled_from(list(LEVELS))),
    some("since", st.integers(0, 20).map(lambda second: NANOS + second * 10**9)),
    some("until", st.integers(21, 40).map(lambda second: NANOS + second * 10**9)),
    some("grep", st.sampled_from(["error", "disk", "4"])),
    some("tokens", st.lists(st.integers(1, 9), min_size=1, max_size=2)),
    st.one_of(
        st.just({}),
        st.integers(1, 20).map(lambda seq: {"from_seq": seq}),
        st.tuples(st.integers(1, 9), st.integers(1, 20)).map(lambda place: {"after": place}),
    ),
).map(lambda parts: Asked({name: value for part in parts for name, value in part.items()}))


def lines_of(reading: RunReader) -> list[tuple[int, int]]:
    async def run() -> list[tuple[int, int]]:
        return [(answer.token, line.seq) async for answer in reading.available() for line in answer.lines]

    return asyncio.run(run())


def reading_of(source: Any, request: ReadRequest, clock: FakeClock | None = None) -> RunReader:
    return RunReader(deps=ReaderDeps(source=source, codec=LogLinesCodec(), clock=clock or FakeClock()), request=request)


@given(
    data=st.data(),
    model=attempts(),
    asked=FILTERS,
    last=st.integers(0, 20),
    end=st.sampled_from(["", "head", "tail"]),
    count=st.integers(1, 9),
)
def test_what_is_stored_is_read_as_the_model_says(
    data: st.DataObject, model: dict[int, list[LogLine]], asked: Asked, last: int, end: str, count: int
) -> None:
    """In the database, in the archive, and in both: a chunk that moves is in the archive too before it leaves the database."""
    database, archive = MemoryChunks(), MemoryChunks("s3://b/k")
    for token, lines in model.items():
        for chunk in data.draw(chunked(lines, token)):
            where = data.draw(st.sampled_from(["database", "archive", "both"]))
            if where != "archive":
                database.put(chunk)
            if where != "database":
                archive.put(chunk)
    if last:
        asked.fields["to_seq"] = last
    if end == "tail":
        asked.fields.pop("after", None)
    request = asked.request(**({end: count} if end else {}))
    wanted = [(token, line.seq) for token in sorted(model) for line in model[token] if asked.keeps(token, line)]
    if end:
        wanted = wanted[:count] if end == "head" else wanted[-count:]
    assert lines_of(reading_of(CombinedSource(database, archive), request)) == wanted


@given(data=st.data(), model=attempts(), asked=FILTERS)
def test_a_follower_gets_each_line_once_and_in_order_whatever_arrives_first(
    data: st.DataObject, model: dict[int, list[LogLine]], asked: Asked
) -> None:
    """One attempt; its chunks arrive in any order, and the follower looks after each."""
    token, lines = max(model.items())
    source = MemoryChunks()
    reading = reading_of(source, asked.request(follow=True))
    got: list[tuple[int, int]] = []
    for chunk in data.draw(st.permutations(data.draw(chunked(lines, token)))):
        source.put(chunk)
        got += lines_of(reading)
        assert not reading.at_end
    source.seal(RUN, token, len(lines))
    got += lines_of(reading)
    assert got == [(token, line.seq) for line in lines if asked.keeps(token, line)]
    named = asked.fields.get("tokens")
    past = asked.fields.get("after", (0, 0))[0] > token
    assert reading.at_end == ((not named or token in named) and not past)


@given(data=st.data(), model=attempts(), count=st.integers(1, 9))
def test_a_followed_tail_goes_on_where_it_ended(
    data: st.DataObject, model: dict[int, list[LogLine]], count: int
) -> None:
    """Chunks come in order here: the tail is what is stored first, and everything after it follows."""
    token, lines = max(model.items())
    chunks = sorted(data.draw(chunked(lines, token)), key=lambda chunk: chunk.seq_from)
    cut = data.draw(st.integers(0, len(chunks)))
    source = MemoryChunks()
    for chunk in chunks[:cut]:
        source.put(chunk)
    reading = reading_of(source, Asked().request(follow=True, tail=count))
    got = lines_of(reading)
    stored = {line for chunk in chunks[:cut] for line in range(chunk.seq_from, chunk.seq_to + 1)}
    for chunk in chunks[cut:]:
        source.put(chunk)
        got += lines_of(reading)
    source.seal(RUN, token, len(lines))
    got += lines_of(reading)
    seqs = [seq for _, seq in got]
    assert seqs == sorted(set(seqs))
    assert seqs == list(range(seqs[0], len(lines) + 1)) if seqs else not lines
    assert len(seqs) >= min(count, len(lines))
    assert not cut or not seqs or seqs[0] <= max(stored) + 1


@given(
    data=st.data(),
    model=attempts(),
    streams=st.sampled_from([[], [1], [2], [1, 2]]),
    first=st.integers(0, 120),
    length=st.integers(0, 120),
    follow=st.booleans(),
)
def test_bytes_are_those_of_the_text(
    data: st.DataObject,
    model: dict[int, list[LogLine]],
    streams: list[int],
    first: int,
    length: int,
    follow: bool,
) -> None:
    token, lines = max(model.items())
    source = MemoryChunks()
    for chunk in data.draw(chunked(lines, token)):
        source.put(chunk)
    source.seal(RUN, token, len(lines))
    byte_to = first + length if length else 0
    request = read_request(
        ReadLogRequest(
            run_id=RUN, token=token, raw=True, streams=streams, byte_from=first, byte_to=byte_to, follow=follow
        )  # type: ignore[arg-type]
    )
    reading = RawReader(deps=ReaderDeps(source=source, codec=LogLinesCodec(), clock=FakeClock()), request=request)

    async def run() -> bytes:
        text = b""
        async for answer in reading.available():
            if answer.data:
                assert answer.byte_offset == first + len(text)
                text += answer.data
        return text

    whole = b"".join(
        line.text + (b"" if line.partial else b"\n") for line in lines if line.stream in (streams or [1, 2])
    )
    assert asyncio.run(run()) == whole[first : byte_to or None]
