"""Epochs and fencing tokens: 63 bits, generation (12) | counter (24) | attempt number (27).

A leader's epoch has attempt number zero. A token is the epoch of the dispatching term plus an attempt number. Tokens and epochs
are therefore comparable and strictly increasing over all dispatches of all runs. The generation is at least PostgreSQL's WAL
timeline, which grows with each fail-over, so an epoch is never reused after a fail-over that lost commits.
"""

from __future__ import annotations

from dataclasses import dataclass

GENERATION_BITS = 12
COUNTER_BITS = 24
ATTEMPT_BITS = 27
MAX_GENERATION = (1 << GENERATION_BITS) - 1
MAX_COUNTER = (1 << COUNTER_BITS) - 1
MAX_ATTEMPT = (1 << ATTEMPT_BITS) - 1
# From this generation on a metric warns: only fail-overs and restores consume generations.
GENERATION_WARNING = MAX_GENERATION - 64


class EpochExhausted(OverflowError):
    """No larger epoch, or no further token of a term, exists."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The parts of an epoch or token."""

    generation: int
    counter: int
    attempt: int = 0

    @classmethod
    def unpack(cls, value: int) -> Epoch:
        """The parts of a 63-bit value; raises ValueError outside 0 … 2^63 - 1."""
        if not 0 <= value < 1 << 63:
            raise ValueError(f"not a 63-bit epoch: {value}")
        return cls(value >> (COUNTER_BITS + ATTEMPT_BITS), (value >> ATTEMPT_BITS) & MAX_COUNTER, value & MAX_ATTEMPT)

    def pack(self) -> int:
        """The 63-bit value; raises ValueError when a part does not fit."""
        if not (
            0 <= self.generation <= MAX_GENERATION
            and 0 <= self.counter <= MAX_COUNTER
            and 0 <= self.attempt <= MAX_ATTEMPT
        ):
            raise ValueError(f"part of an epoch out of range: {self}")
        return (self.generation << (COUNTER_BITS + ATTEMPT_BITS)) | (self.counter << ATTEMPT_BITS) | self.attempt


def term_of(token: int) -> int:
    """The epoch of the term that issued this token."""
    return token & ~MAX_ATTEMPT


def near_limit(epoch: int) -> bool:
    """Whether fewer than 64 generations are left."""
    return Epoch.unpack(epoch).generation >= GENERATION_WARNING


def next_epoch(*, observed: int, timeline: int, same_cluster: bool = True) -> int:
    """The next epoch, larger than `observed`: the one in the leader row.

    The generation is the WAL timeline when that exceeds the observed one. Otherwise it is the observed one plus one when PostgreSQL may have
    lost commits: `observed` is not of the `same_cluster` and database (a restore, a fail-over). The lost commits may have used epochs of
    the observed generation that no process remembers. Raises EpochExhausted at the end of the range.
    """
    known = Epoch.unpack(observed)
    if timeline > known.generation:
        return Epoch(timeline, 1).pack() if timeline <= MAX_GENERATION else _exhausted(observed)
    if same_cluster and known.counter < MAX_COUNTER:
        return Epoch(known.generation, known.counter + 1).pack()
    return generation_above(observed) | (1 << ATTEMPT_BITS)


def generation_above(epoch: int) -> int:
    """The beginning of the next generation: an epoch that no leader has, below every one of that generation. Raises EpochExhausted."""
    generation = Epoch.unpack(epoch).generation
    return Epoch(generation + 1, 0).pack() if generation < MAX_GENERATION else _exhausted(epoch)


def _exhausted(highest: int) -> int:
    raise EpochExhausted(f"no epoch above {highest}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochProof:
    """What a coordinator signs of an executor's grant: the leader's epoch in PostgreSQL, and the grant_seq that was committed with it.

    `signed_at` is PostgreSQL's clock, Unix time in seconds. grant_seq 0: the incarnation was registered, and had no grant yet. `nonce` is that
    of the grant.
    """

    cluster_id: str
    epoch: int
    incarnation: str
    grant_seq: int
    signed_at: int
    nonce: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One leadership term: its epoch, the leader, and the PostgreSQL cluster in which it was acquired. `database` is the oid."""

    epoch: int
    worker_id: int
    incarnation: str
    system_id: str
    timeline: int
    database: int = 0


class TokenSource:
    """Issues the tokens of one term: epoch | 1, epoch | 2, … Only the leader of the term has one."""

    def __init__(self, term: Term) -> None:
        self._epoch = term.epoch
        self._drawn = 0

    def next_token(self) -> int:
        """The next token; raises EpochExhausted when the term has no attempt number left (a new epoch is then needed)."""
        if self._drawn >= MAX_ATTEMPT:
            raise EpochExhausted(f"term {self._epoch} has no attempt number left")
        self._drawn += 1
        return self._epoch | self._drawn

    @property
    def left(self) -> int:
        """Number of tokens that this term can still issue."""
        return MAX_ATTEMPT - self._drawn
