"""One Append stream: its tickets, and what of a request may be written."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TypeVar
from uuid import UUID

from google.protobuf.message import DecodeError

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_log_archiver.decide.chunk_validation import ChunkInvalid
from toban_log_archiver.server.chunk_codec import checked, opened_size
from toban_log_archiver.server.group_commit import Place, Work
from toban_log_archiver.server.partition_cache import Days
from toban_log_archiver.store.chunks import NewChunk
from toban_log_archiver.store.log_attempts import TokenNote
from toban_observability import metrics
from toban_proto.v1 import common_pb2
from toban_proto.v1.logs_pb2 import AppendRequest, ChunkRefusal, LogChunk, Seal
from toban_runtime.clock import Clock
from toban_transport.log_ticket import TicketVerifier

# Attempts whose ticket a stream remembers; one that was forgotten is asked for by TICKET_MISSING.
MAX_TICKETS = 20_000
# The chunks of a request whose text is larger than this are opened in a thread, so that other streams do not wait.
INLINE_BYTES = 64 * 1024
CHUNK_INVALID = "CHUNK_INVALID"

# Stands for the attempt of a ticket whose body cannot be read.
_UNREADABLE = AttemptKey(0, 0)

T = TypeVar("T")

_refusals = metrics.counter("toban_log_refusals_total", "Rejected tickets, chunks and seals by error code.", ("code",))


@dataclass(frozen=True, slots=True)
class _Pass:
    """What a good ticket said."""

    log_day: date
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What of a request is written, and what is refused already."""

    work: Work
    refusals: list[ChunkRefusal]
    sealed: list[AttemptKey]


class AppendSession:
    """Checks the requests of one stream. Bad chunks are refused one by one; the rest of the request goes on."""

    def __init__(
        self,
        *,
        verifier: TicketVerifier,
        days: Days,
        clock: Clock,
        within_budget: Callable[[list[NewChunk]], Awaitable[list[NewChunk]]],
    ) -> None:
        self._verifier = verifier
        self._within_budget = within_budget
        self._days = days
        self._clock = clock
        self._passes: OrderedDict[AttemptKey, _Pass] = OrderedDict()
        self._refused: OrderedDict[AttemptKey, tuple[str, str]] = OrderedDict()

    async def admit(self, request: AppendRequest) -> Admitted:
        """What of this request may be written. Raises StoreError when a partition could not be looked at."""
        refusals: list[ChunkRefusal] = []
        notes = [note for ticket in request.tickets if (note := await self._take_ticket(ticket)) is not None]
        chunks = await self._take_chunks(request.chunks, refusals)
        notes += [note for seal in request.seals if (note := self._take_seal(seal, refusals)) is not None]
        sealed = [AttemptKey(seal.run_id, seal.token) for seal in request.seals]
        return Admitted(work=Work(chunks=chunks, notes=notes), refusals=refusals, sealed=sealed)

    def settle(self, admitted: Admitted, refused: Mapping[Place, str]) -> list[ChunkRefusal]:
        """The refusals to answer with, after the commit; forgets the tickets of sealed attempts."""
        refusals = list(admitted.refusals)
        for (run_id, token, _, seq_from), why in refused.items():
            refusals.append(_refusal(AttemptKey(run_id, token), seq_from, CHUNK_INVALID, why))
        if refused:
            self._days.forget()
        for key in admitted.sealed:
            self._passes.pop(key, None)
        return refusals

    async def _take_ticket(self, ticket: common_pb2.LogTicket) -> TokenNote | None:
        try:
            body = self._verifier.verify(ticket, now=self._clock.wall())
        except TobanError as error:
            # Answered chunk by chunk: a sender that heard TICKET_MISSING would send the bad ticket again.
            _remember(self._refused, _claimed_key(ticket), (error.code.value, error.message))
            return None
        key = AttemptKey(body.run_id, body.token)
        day = date.fromisoformat(body.log_day)
        problem = await self._days.ready(day) or _incarnation_problem(body.incarnation)
        if problem:
            _remember(self._refused, key, (CHUNK_INVALID, problem))
            return None
        self._refused.pop(key, None)
        _remember(self._passes, key, _Pass(day, body.incarnation))
        return TokenNote(log_day=day, run_id=key.run_id, token=key.token, incarnation=body.incarnation)

    async def _take_chunks(self, sent: Iterable[LogChunk], refusals: list[ChunkRefusal]) -> list[NewChunk]:
        allowed: list[tuple[LogChunk, date]] = []
        for chunk in sent:
            held = self._pass(AttemptKey(chunk.run_id, chunk.token), chunk.seq_from, refusals)
            if held is not None:
                allowed.append((chunk, held.log_day))
        if sum(opened_size(chunk.data) for chunk, _ in allowed) <= INLINE_BYTES:
            good, bad = _opened(allowed)
        else:
            good, bad = await asyncio.to_thread(_opened, allowed)
        refusals += [_refusal(AttemptKey(one.run_id, one.token), one.seq_from, CHUNK_INVALID, why) for one, why in bad]
        return await self._within_budget(good)

    def _take_seal(self, seal: Seal, refusals: list[ChunkRefusal]) -> TokenNote | None:
        key = AttemptKey(seal.run_id, seal.token)
        held = self._pass(key, 0, refusals)
        if held is None:
            return None
        if seal.last_seq < 0:
            refusals.append(_refusal(key, 0, CHUNK_INVALID, f"a seal at {seal.last_seq} is before the first line"))
            return None
        return TokenNote(
            log_day=held.log_day,
            run_id=key.run_id,
            token=key.token,
            incarnation=held.incarnation,
            last_seq=seal.last_seq,
        )

    def _pass(self, key: AttemptKey, seq_from: int, refusals: list[ChunkRefusal]) -> _Pass | None:
        """The ticket of this attempt, which names its day; a chunk or seal without one is refused."""
        held = self._passes.get(key)
        if held is None:
            why = f"no ticket for run {key.run_id}, token {key.token} on this stream: send it with the chunk"
            unreadable = self._refused.get(_UNREADABLE, (ErrorCode.TICKET_MISSING.value, why))
            code, message = self._refused.get(key, unreadable)
            refusals.append(_refusal(key, seq_from, code, message))
        return held


def _opened(allowed: Iterable[tuple[LogChunk, date]]) -> tuple[list[NewChunk], list[tuple[LogChunk, str]]]:
    """The good ones of these chunks, and the bad ones, each with the reason."""
    good: list[NewChunk] = []
    bad: list[tuple[LogChunk, str]] = []
    for chunk, log_day in allowed:
        try:
            good.append(checked(chunk, log_day))
        except ChunkInvalid as error:
            bad.append((chunk, str(error)))
    return good, bad


def _remember(held: OrderedDict[AttemptKey, T], key: AttemptKey, value: T) -> None:
    held[key] = value
    held.move_to_end(key)
    if len(held) > MAX_TICKETS:
        held.popitem(last=False)


def _claimed_key(ticket: common_pb2.LogTicket) -> AttemptKey:
    """The attempt that a bad ticket speaks of: good for naming it in a refusal of this stream, and for nothing else."""
    try:
        body = common_pb2.LogTicketBody.FromString(ticket.body)
    except DecodeError:
        return _UNREADABLE
    return AttemptKey(body.run_id, body.token)


def _incarnation_problem(text: str) -> str:
    try:
        UUID(text)
    except ValueError:
        return f"the ticket's incarnation {text!r} is not a UUID"
    return ""


def _refusal(key: AttemptKey, seq_from: int, code: str, message: str) -> ChunkRefusal:
    _refusals.labels(code).inc()
    named = common_pb2.AttemptKey(run_id=key.run_id, token=key.token)
    return ChunkRefusal(key=named, seq_from=seq_from, code=code, message=message)
