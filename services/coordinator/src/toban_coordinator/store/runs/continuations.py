"""Confirmations that attempts may continue: a grant, and the check of the runs that it is asked for, in one transaction (docs/fencing.md 3.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from toban_domain.lease import MAX_ECHO_LAG, ExecutorState
from toban_domain.outcome import AttemptKey
from toban_store import queries
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, tx

# Attempts of one batch whose loss is looked up, over the partitions of all days: what an executor names is not all its own.
MAX_LOST_NOTES = 100
CONFIRMED = "its executor asked, and its lease was renewed"
CANCELED = "a cancel was requested"
STOPPED = "an operator detached its executor (stop)"
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

    Not `granted`: `grant_seq` is the current one. `nonce_known` is false when another copy of the incarnation may have the lease.
    The last four come with a grant; a coordinator signs them.
    """

    incarnation: str
    state: ExecutorState
    detach_mode: str
    grant_seq: int
    nonce_known: bool
    held: dict[AttemptKey, bool]
    granted: bool = False
    nonce: int = 0
    leader_epoch: int = 0
    cluster_id: str = ""
    granted_at: int = 0

    @property
    def continuing(self) -> list[AttemptKey]:
        """The held attempts without a cancel."""
        return [key for key, canceled in self.held.items() if not canceled]


async def confirm(pool: Pool, questions: Sequence[Question], *, seconds: float) -> dict[str, Verdict]:
    """Grant where at least one of the attempts may continue; those are CONFIRMING for `seconds`. An unknown incarnation is not in the answer.

    One question for each incarnation. Several short statements, each linear in the number of attempts. Those that take run ids are not prepared:
    a cached generic plan expects ten ids and is quadratic (3 s for 10,000 attempts on an idle machine, up to 55 s on a busy one).
    """
    async with tx(pool) as t:
        rows = await t.fetch_all(_sql.look, _presented(questions) | {"lag": MAX_ECHO_LAG})
        held = await _held(t, questions)
        verdicts = {row["incarnation"]: _verdict(row, held.get(row["incarnation"], {})) for row in rows}
        may = {row["incarnation"] for row in rows if row["may"]}
        granted = [q for q in questions if q.incarnation in may and not all(verdicts[q.incarnation].held.values())]
        if granted:
            for row in await t.fetch_all(_sql.grant, _presented(granted)):
                verdicts[row["incarnation"]] = replace(verdicts[row["incarnation"]], granted=True, **row)
            runs = [key.run_id for verdict in verdicts.values() if verdict.granted for key in verdict.continuing]
            await t.execute(_sql.confirm, {"runs": runs, "seconds": seconds}, prepare=False)
        await _note(t, questions, verdicts)
    return verdicts


def _presented(questions: Sequence[Question]) -> dict[str, Any]:
    return {
        "incarnations": [question.incarnation for question in questions],
        "echoes": [question.echo for question in questions],
        "nonces": [question.nonce for question in questions],
    }


async def _held(t: Tx, questions: Sequence[Question]) -> dict[str, dict[AttemptKey, bool]]:
    named = [(question.incarnation, key) for question in questions for key in question.keys]
    held: dict[str, dict[AttemptKey, bool]] = {}
    for row in await t.fetch_all(_sql.held, _named(named), prepare=False):
        held.setdefault(row["incarnation"], {})[AttemptKey(row["run_id"], row["token"])] = row["canceled"]
    return held


def _named(named: Sequence[tuple[str, AttemptKey]]) -> dict[str, Any]:
    return {
        "holders": [incarnation for incarnation, _ in named],
        "runs": [key.run_id for _, key in named],
        "tokens": [key.token for _, key in named],
    }


def _verdict(row: Row, held: dict[AttemptKey, bool]) -> Verdict:
    return Verdict(
        incarnation=row["incarnation"],
        state=ExecutorState(row["state"]),
        detach_mode=row["detach_mode"],
        grant_seq=row["grant_seq"],
        nonce_known=row["nonce_known"],
        held=held,
    )


async def _note(t: Tx, questions: Sequence[Question], verdicts: Mapping[str, Verdict]) -> None:
    """The events of the runs."""
    notes: dict[tuple[int, str], str] = {}
    lost: list[tuple[str, AttemptKey]] = []
    for question in questions:
        verdict = verdicts.get(question.incarnation)
        if verdict is None:
            continue
        if verdict.granted:
            notes |= {(key.run_id, "continuation_confirmed"): CONFIRMED for key in verdict.continuing}
        stopped = verdict.detach_mode == "stop"
        for key, canceled in verdict.held.items():
            if canceled or stopped:
                notes[key.run_id, "continuation_refused"] = CANCELED if canceled else STOPPED
        if verdict.state is not ExecutorState.OFF:
            unknown = (key for key in dict.fromkeys(question.keys) if key not in verdict.held)
            lost += [(question.incarnation, key) for key in islice(unknown, MAX_LOST_NOTES)]
    if notes:
        params = {"runs": [run for run, _ in notes], "types": [kind for _, kind in notes]}
        await t.execute(_sql.note, params | {"messages": list(notes.values())}, prepare=False)
    if lost:
        await t.execute(_sql.note_lost, _named(lost[:MAX_LOST_NOTES]), prepare=False)
