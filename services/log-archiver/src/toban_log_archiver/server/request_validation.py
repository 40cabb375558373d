"""Read and Search requests, checked and translated."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.app.requests import ReadRequest, SearchPosition, SearchRequest
from toban_log_archiver.decide.line import STREAMS, SYSTEM
from toban_log_archiver.decide.line_filter import LEVELS, Selection
from toban_log_archiver.decide.line_pattern import Pattern, PatternInvalid
from toban_log_archiver.decide.tail import MAX_TAIL_LINES
from toban_proto.v1.logs_pb2 import ReadLogRequest, SearchLogRequest

Filters = ReadLogRequest | SearchLogRequest
# Runs of one search, and lines that it gives at most.
MAX_RUNS = 1000
MAX_HITS = 10_000
DEFAULT_HITS = 1000
# With raw, these may be given besides run and token; bytes can be counted in whole streams only.
_RAW_FIELDS = frozenset({"run_id", "token", "follow", "streams", "raw", "byte_from", "byte_to", "ticket"})
_ALONE = (("tail", "head"), ("tail", "after"), ("from_seq", "after"), ("token", "tokens"), ("to_seq", "follow"))


def read_request(request: ReadLogRequest) -> ReadRequest:
    """The request of a Read call. Raises TobanError INVALID_ARGUMENT."""
    given = {field.name for field, _ in request.ListFields()}
    if request.run_id <= 0:
        raise _wrong(f"run_id {request.run_id} is not a run: name a positive one")
    if not 0 <= request.tail <= MAX_TAIL_LINES:
        raise _wrong(f"tail {request.tail} is not within 0-{MAX_TAIL_LINES}: read from the start for more")
    for name in ("head", "to_seq", "byte_from", "byte_to"):
        if getattr(request, name) < 0:
            raise _wrong(f"{name} {getattr(request, name)} is below 0")
    for one, other in _ALONE:
        if {one, other} <= given:
            raise _wrong(f"{one} and {other} exclude each other: give one of them")
    _check_filters(request)
    _check_raw(request, given)
    return ReadRequest(
        run_id=request.run_id,
        selection=_selection(request),
        tokens=frozenset(request.tokens) or frozenset({request.token} - {0}),
        after=(request.after.token, request.after.seq),
        from_seq=request.from_seq,
        to_seq=request.to_seq,
        head=request.head,
        tail=request.tail,
        follow=request.follow,
        raw=request.raw,
        byte_from=request.byte_from,
        byte_to=request.byte_to,
    )


def _check_raw(request: ReadLogRequest, given: set[str]) -> None:
    if request.raw and given - _RAW_FIELDS:
        raise _wrong(f"raw text cannot be filtered: leave {', '.join(sorted(given - _RAW_FIELDS))} out")
    if request.raw and SYSTEM in request.streams:
        raise _wrong("raw text is what the job wrote: streams 1 and 2, not 3")
    if not request.raw and (request.byte_from or request.byte_to):
        raise _wrong("bytes are counted in the raw text: ask for raw too")
    if (request.byte_from or request.byte_to) and not request.token:
        raise _wrong("bytes are counted in one attempt: name its token")
    if request.byte_to and request.byte_to < request.byte_from:
        raise _wrong(f"the bytes {request.byte_from}-{request.byte_to} end before they begin")


def search_request(request: SearchLogRequest) -> SearchRequest:
    """The request of a Search call. Raises TobanError INVALID_ARGUMENT."""
    if not 0 < len(request.run_ids) <= MAX_RUNS:
        raise _wrong(f"{len(request.run_ids)} run_ids: name 1 to {MAX_RUNS}")
    if min(request.run_ids) <= 0:
        raise _wrong(f"run_id {min(request.run_ids)} is not a run: name positive ones")
    if not 0 <= request.limit <= MAX_HITS:
        raise _wrong(
            f"limit {request.limit} is not within 0-{MAX_HITS}: go on after the position of the last answer for more"
        )
    if request.HasField("after") and request.after.run_id not in request.run_ids:
        raise _wrong(f"after names run {request.after.run_id}, which is none of run_ids")
    _check_filters(request)
    after = request.after
    return SearchRequest(
        run_ids=list(request.run_ids),
        selection=_selection(request),
        limit=request.limit or DEFAULT_HITS,
        after=SearchPosition(after.run_id, after.token, after.seq) if request.HasField("after") else None,
    )


def _check_filters(request: Filters) -> None:
    if unknown := set(request.streams) - STREAMS:
        raise _wrong(f"unknown streams {sorted(unknown)}: 1 stdout, 2 stderr, 3 system")
    if request.level and request.level not in LEVELS:
        raise _wrong(f"unknown level {request.level[:100]!r}: one of {', '.join(LEVELS)}")


def _selection(request: Filters) -> Selection:
    since, until = _nanos(request, "since"), _nanos(request, "until")
    if since is not None and until is not None and until <= since:
        raise _wrong("until is not after since: no line is between them")
    return Selection(
        streams=_streams(request),
        since_nanos=since,
        until_nanos=until,
        min_level=LEVELS.get(request.level, 0),
        pattern=_pattern(request),
    )


def _streams(request: Filters) -> frozenset[int]:
    wanted: frozenset[int] = frozenset(request.streams) or STREAMS
    raw = isinstance(request, ReadLogRequest) and request.raw
    return wanted - {SYSTEM} if raw else wanted


def _pattern(request: Filters) -> Pattern | None:
    if not request.grep:
        if request.regex:
            raise _wrong("regex says how to read grep, which is not given")
        return None
    try:
        return Pattern(request.grep, regex=request.regex)
    except PatternInvalid as error:
        raise _wrong(f"grep {request.grep[:100]!r} cannot be searched for: {error}") from None


def _nanos(request: Filters, name: str) -> int | None:
    if not request.HasField(name):  # type: ignore[arg-type]
        return None
    stamp: Timestamp = getattr(request, name)
    try:
        stamp.ToDatetime()
    except (ValueError, OverflowError):
        raise _wrong(f"{name} is not a time between the years 1 and 9999") from None
    return stamp.ToNanoseconds()


def _wrong(message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, message)
