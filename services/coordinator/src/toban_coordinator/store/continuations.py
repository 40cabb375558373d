"""Confirmations that attempts may continue: a grant, and the check of the runs that it is asked for, in one transaction (docs/fencing.md 3.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.store import executors
from toban_domain.lease import MAX_ECHO_LAG, ExecutorState
from toban_domain.outcome import AttemptKey
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import Row, tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May these attempts of an incarnation continue? `echo` is the highest grant_seq that it has received, `nonce` came with a grant."""

    incarnation: str
    echo: int
    nonce: int
    keys: Sequence[AttemptKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What PostgreSQL says. `held` are the asked attempts that the incarnation holds, each with whether a cancel is requested for it.

    Not `granted`: `grant_seq` is the current one, `nonce` 0. `nonce_known` is false when another copy of the incarnation may have the lease.
    The last three are what a coordinator signs, too.
    """

    incarnation: str
    state: ExecutorState
    detach_mode: str
    granted: bool
    grant_seq: int
    nonce: int
    nonce_known: bool
    held: dict[AttemptKey, bool]
    leader_epoch: int
    cluster_id: str
    granted_at: int


async def confirm(pool: Pool, questions: Sequence[Question], *, seconds: float) -> dict[str, Verdict]:
    """Grant where at least one of the attempts may continue; those are CONFIRMING for `seconds`. An unknown incarnation is not in the answer.

    One question for each incarnation.
    """
    named = [(question.incarnation, key) for question in questions for key in question.keys]
    incarnations = [question.incarnation for question in questions]
    params = {
        "incarnations": incarnations,
        "echoes": [question.echo for question in questions],
        "nonces": [question.nonce for question in questions],
        "holders": [incarnation for incarnation, _ in named],
        "runs": [key.run_id for _, key in named],
        "tokens": [key.token for _, key in named],
        "lag": MAX_ECHO_LAG,
        "seconds": seconds,
    }
    async with tx(pool) as t:
        await executors.lock(t, incarnations)
        return {row["incarnation"]: _verdict(row) for row in await t.fetch_all(_sql.confirm, params)}


def _verdict(row: Row) -> Verdict:
    held = {AttemptKey(run_id, token): canceled for run_id, token, canceled in row["held"]}
    return Verdict(**{**row, "state": ExecutorState(row["state"]), "held": held})
