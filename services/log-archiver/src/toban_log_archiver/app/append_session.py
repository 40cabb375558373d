"""One Append stream: its tickets, and what of a request may be written."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, TypeVar
from uuid import UUID

from toban_domain.errors import ErrorCode
from toban_domain.outcome import AttemptKey
from toban_log_archiver.app.chunk_writer import Place, Work
from toban_log_archiver.app.partition_cache import PartitionCache
from toban_log_archiver.decide.chunk_validation import ChunkInvalid, Claim
from toban_log_archiver.decide.stored_chunks import NewChunk
from toban_log_archiver.ports.chunk_codec import ChunkCodec
from toban_log_archiver.store.log_attempts import TokenNote
from toban_observability import metrics

# Attempts whose ticket a stream remembers; one that was evicted is requested again by TICKET_MISSING.
MAX_TICKETS = 20_000
# The chunks of a request whose text is larger than this are decoded in a thread, so that other streams do not wait.
INLINE_BYTES = 64 * 1024
CHUNK_INVALID = "CHUNK_INVALID"

K = TypeVar("K")
T = TypeVar("T")

_refusals = metrics.counter("toban_log_refusals_total", "Rejected tickets, chunks and seals by error code.", ("code",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A verified ticket: the attempt, the day of its dispatch, and its executor's incarnation."""

    key: AttemptKey
    log_day: date
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BadTicket:
    """A ticket that failed its verification. `claimed` is the attempt that it names, None when that cannot be read: good for a refusal only."""

    claimed: AttemptKey | None
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentChunk:
    """A chunk as its sender describes it; `data` is not decoded yet."""

    key: AttemptKey
    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    data: bytes


class SentSeal(NamedTuple):
    """The last sequence number of an attempt."""

    key: AttemptKey
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """One message of an Append stream."""

    tickets: Sequence[Ticket | BadTicket] = ()
    chunks: Sequence[SentChunk] = ()
    seals: Sequence[SentSeal] = ()


class Refusal(NamedTuple):
    """A chunk (or a seal, with `seq_from` 0) that is not written, and why."""

    key: AttemptKey
    seq_from: int
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What of a request is written, and what is refused already."""

    work: Work
    refusals: list[Refusal]
    sealed: list[AttemptKey]


class AppendSession:
    """Checks the requests of one stream. Bad chunks are refused one by one; the rest of the request goes on."""

    def __init__(
        self,
        *,
        codec: ChunkCodec,
        partitions: PartitionCache,
        within_budget: Callable[[list[NewChunk]], Awaitable[list[NewChunk]]],
    ) -> None:
        self._codec = codec
        self._partitions = partitions
        self._within_budget = within_budget
        self._tickets: OrderedDict[AttemptKey, Ticket] = OrderedDict()
        # By the attempt that a bad ticket claims; None: a ticket that could not be read.
        self._refused: OrderedDict[AttemptKey | None, tuple[str, str]] = OrderedDict()

    async def admit(self, request: SentRequest) -> Admitted:
        """What of this request may be written. Raises StoreError when partitions cannot be read or made."""
        refusals: list[Refusal] = []
        notes = [note for ticket in request.tickets if (note := await self._admit_ticket(ticket)) is not None]
        chunks = await self._admit_chunks(request.chunks, refusals)
        notes += [note for seal in request.seals if (note := self._admit_seal(seal, refusals)) is not None]
        work = Work(chunks=chunks, notes=notes)
        return Admitted(work=work, refusals=refusals, sealed=[seal.key for seal in request.seals])

    def complete(self, admitted: Admitted, refused: Mapping[Place, str]) -> list[Refusal]:
        """All refusals of a request, after its commit; forgets the tickets of sealed attempts."""
        refusals = list(admitted.refusals)
        for (run_id, token, _, seq_from), why in refused.items():
            refusals.append(_refusal(AttemptKey(run_id, token), seq_from, CHUNK_INVALID, why))
        if refused:
            self._partitions.forget()
        for key in admitted.sealed:
            self._tickets.pop(key, None)
        return refusals

    async def _admit_ticket(self, ticket: Ticket | BadTicket) -> TokenNote | None:
        if isinstance(ticket, BadTicket):
            # Refused chunk by chunk: after TICKET_MISSING the sender would send the bad ticket again.
            _remember(self._refused, ticket.claimed, (ticket.code, ticket.message))
            return None
        key = ticket.key
        problem = await self._partitions.ready(ticket.log_day) or _incarnation_problem(ticket.incarnation)
        if problem:
            # Not the chunk's fault, and perhaps that of a clock: the executor keeps its lines.
            _remember(self._refused, key, (ErrorCode.TICKET_INVALID.value, problem))
            return None
        self._refused.pop(key, None)
        _remember(self._tickets, key, ticket)
        return _note(ticket)

    async def _admit_chunks(self, sent: Iterable[SentChunk], refusals: list[Refusal]) -> list[NewChunk]:
        allowed: list[tuple[SentChunk, date]] = []
        for chunk in sent:
            ticket = self._ticket_of(chunk.key, chunk.seq_from, refusals)
            if ticket is not None:
                allowed.append((chunk, ticket.log_day))
        if sum(self._codec.opened_size(chunk.data) for chunk, _ in allowed) <= INLINE_BYTES:
            good, bad = self._checked(allowed)
        else:
            good, bad = await asyncio.to_thread(self._checked, allowed)
        refusals += [_refusal(chunk.key, chunk.seq_from, CHUNK_INVALID, why) for chunk, why in bad]
        return await self._within_budget(good)

    def _checked(self, allowed: Iterable[tuple[SentChunk, date]]) -> tuple[list[NewChunk], list[tuple[SentChunk, str]]]:
        """The good ones of these chunks, and the bad ones, each with the reason."""
        good: list[NewChunk] = []
        bad: list[tuple[SentChunk, str]] = []
        for chunk, log_day in allowed:
            try:
                good.append(checked(self._codec, chunk, log_day))
            except ChunkInvalid as error:
                bad.append((chunk, str(error)))
        return good, bad

    def _admit_seal(self, seal: SentSeal, refusals: list[Refusal]) -> TokenNote | None:
        ticket = self._ticket_of(seal.key, 0, refusals)
        if ticket is None:
            return None
        if seal.last_seq < 0:
            refusals.append(_refusal(seal.key, 0, CHUNK_INVALID, f"a seal at {seal.last_seq} is before the first line"))
            return None
        return _note(ticket, last_seq=seal.last_seq)

    def _ticket_of(self, key: AttemptKey, seq_from: int, refusals: list[Refusal]) -> Ticket | None:
        """The ticket of this attempt, which names its day; a chunk or seal without one is refused."""
        ticket = self._tickets.get(key)
        if ticket is None:
            why = f"no ticket for run {key.run_id}, token {key.token} on this stream: send it with the chunk"
            unreadable = self._refused.get(None, (ErrorCode.TICKET_MISSING.value, why))
            code, message = self._refused.get(key, unreadable)
            refusals.append(_refusal(key, seq_from, code, message))
        return ticket


def checked(codec: ChunkCodec, chunk: SentChunk, log_day: date) -> NewChunk:
    """The chunk as it will be stored. Raises ChunkInvalid. Sizes and times are measured, not the sender's."""
    claim = Claim(
        stream=chunk.stream,
        seq_from=chunk.seq_from,
        seq_to=chunk.seq_to,
        line_count=chunk.line_count,
        data_bytes=len(chunk.data),
    )
    measured = codec.check(claim, chunk.data)
    return NewChunk(
        log_day=log_day,
        run_id=chunk.key.run_id,
        token=chunk.key.token,
        stream=chunk.stream,
        seq_from=chunk.seq_from,
        seq_to=chunk.seq_to,
        line_count=chunk.line_count,
        raw_bytes=measured.raw_bytes,
        first_at=measured.first_at,
        last_at=measured.last_at,
        data=chunk.data,
    )


def _note(ticket: Ticket, *, last_seq: int | None = None) -> TokenNote:
    key = ticket.key
    return TokenNote(
        log_day=ticket.log_day,
        run_id=key.run_id,
        token=key.token,
        incarnation=ticket.incarnation,
        last_seq=last_seq,
    )


def _remember(known: OrderedDict[K, T], key: K, value: T) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_TICKETS:
        known.popitem(last=False)


def _incarnation_problem(text: str) -> str:
    try:
        UUID(text)
    except ValueError:
        return f"the ticket's incarnation {text!r} is not a UUID"
    return ""


def _refusal(key: AttemptKey, seq_from: int, code: str, message: str) -> Refusal:
    _refusals.labels(code).inc()
    return Refusal(key, seq_from, code, message)
