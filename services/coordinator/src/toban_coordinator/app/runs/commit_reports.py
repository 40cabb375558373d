"""Commits a batch of reports: lock, decide, write. Not a leader's write: every step is conditional on (run, token, state)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toban_coordinator.app.adaptive_batch import split_on_refusal
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.metrics import count_finished
from toban_coordinator.app.runs.certain_ends import NO_LOOPS, certain_of, end_certain
from toban_coordinator.app.runs.retry_rules import retry_rule
from toban_coordinator.decide.runs import report as decide
from toban_coordinator.decide.runs.report import Answer, KnownAttempt, Report, ReportPlan
from toban_coordinator.store.executors import executors
from toban_coordinator.store.runs import attempts, orphan_waits, runs_finish
from toban_domain.outcome import AttemptKey, Outcome
from toban_domain.transitions import LiveRun
from toban_observability.logs import get_logger
from toban_runtime.loop import WakeRegistry
from toban_store.errors import DidNotHappen, Refused, StoreError, Unsuitable
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

MAX_SUMMARY = 500
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to one report, and for REFUSED why."""

    answer: Answer
    message: str = ""


async def commit_reports(
    pool: Pool,
    definitions: DefinitionCache,
    incarnation: str,
    reports: Sequence[Report],
    wakes: WakeRegistry = NO_LOOPS,
) -> list[Committed]:
    """The answers to `reports` of one executor, in order, after everything that they change is committed. `wakes` has the loops that run here.

    Reports that PostgreSQL does not store, for the sake of their data or of its own state, hold up no other.
    """
    if not reports:
        return []
    answers: list[Committed] = []
    unsuitable: list[Unsuitable] = []

    async def write(part: Sequence[Report]) -> None:
        answers.extend([Committed(answer) for answer in await _commit(pool, definitions, incarnation, part, wakes)])

    async def alone(report: Report, error: DidNotHappen) -> None:
        if isinstance(error, Unsuitable):
            unsuitable.append(error)
            answers.append(Committed(Answer.NOT_STORED, error.message))
        else:
            answers.append(await _commit_without_details(pool, definitions, incarnation, report, error))

    await split_on_refusal(reports, write, alone, refusals=(Refused, Unsuitable))
    if unsuitable:
        await _note_unsuitable(pool, unsuitable, incarnation, len(reports))
    return answers


async def _note_unsuitable(pool: Pool, errors: Sequence[Unsuitable], incarnation: str, reports: int) -> None:
    _log.error(
        "outcomes cannot be stored now; their executor keeps them",
        incarnation=incarnation,
        outcomes=len(errors),
        of=reports,
        error=errors[0].message,
    )
    if any(error.lacks_partition for error in errors):
        # The leader makes the partitions of today at once, instead of with its next round.
        with suppress(StoreError):
            async with autocommit(pool) as t:
                await t.notify("prune")


async def _commit(
    pool: Pool,
    definitions: DefinitionCache,
    incarnation: str,
    reports: Sequence[Report],
    wakes: WakeRegistry = NO_LOOPS,
) -> list[Answer]:
    [ended] = await end_certain(pool, definitions, wakes, [(incarnation, certain_of(reports))])
    rest = [report for report in reports if report.key not in ended]
    answers = iter(await _commit_rest(pool, definitions, incarnation, rest))
    return [Answer.ACCEPTED if report.key in ended else next(answers) for report in reports]


async def _commit_without_details(
    pool: Pool, definitions: DefinitionCache, incarnation: str, report: Report, error: DidNotHappen
) -> Committed:
    """A report that PostgreSQL refuses by itself: its outcome without details, so that the run ends; else REFUSED."""
    key, what = report.key, report.what
    _log.error("report rejected by PostgreSQL", run_id=key.run_id, incarnation=incarnation, error=error.message)
    if isinstance(what, Outcome):
        summary = f"details of this outcome could not be stored: {error.message}"[:MAX_SUMMARY].replace("\0", " ")
        bare = Outcome(
            kind=what.kind,
            reason=what.reason,
            error_summary=summary,
            finished_at=what.finished_at,
            tree_empty=what.tree_empty,
            never_started=what.never_started,
        )
        try:
            return Committed((await _commit(pool, definitions, incarnation, [replace(report, what=bare)]))[0])
        except (Refused, Unsuitable) as again:
            _log.error("outcome rejected even without its details", run_id=key.run_id, error=again.message)
    return Committed(Answer.REFUSED, error.message)


async def _commit_rest(
    pool: Pool, definitions: DefinitionCache, incarnation: str, reports: Sequence[Report]
) -> list[Answer]:
    if not reports:
        return []
    async with tx(pool) as t:
        plan, finished = await _write(t, definitions, incarnation, reports)
    count_finished(finished, definitions.known)
    return plan.answers


async def _write(
    t: Tx, definitions: DefinitionCache, incarnation: str, reports: Sequence[Report]
) -> tuple[ReportPlan, list[runs_finish.Finished]]:
    live = await runs_finish.lock_live(t, sorted({report.key.run_id for report in reports}))
    if late := [report.key for report in reports if decide.may_be_taken(live.get(report.key.run_id), report)]:
        resumed = await runs_finish.resume_lost(t, late, await executors.same_instance(t, incarnation))
        live |= await runs_finish.lock_live(t, sorted(resumed))
    plan = await _decide(t, definitions, incarnation, reports, live)
    await runs_finish.mark_started(t, plan.started)
    finished = await runs_finish.finish(t, plan.finishes)
    await runs_finish.release(t, plan.releases)
    await runs_finish.orphan(t, plan.orphans)
    ended = await orphan_waits.end_of(t, plan.ended_waits)
    await attempts.close(t, plan.closes)
    await attempts.keep_orphans(t, incarnation, plan.kept)
    await _wake(t, plan, ended_waits=ended)
    return plan, finished


async def _wake(t: Tx, plan: ReportPlan, *, ended_waits: int) -> None:
    if plan.orphans or ended_waits:
        await t.notify("reap")
    if plan.releases or plan.orphans:
        await t.notify("assign")


async def _decide(
    t: Tx, definitions: DefinitionCache, incarnation: str, reports: Sequence[Report], live: Mapping[int, LiveRun]
) -> ReportPlan:
    reporters = frozenset({incarnation})
    strays = _strays(reports, live, reporters)
    if strays:
        # A restarted executor reports what the journal of its earlier incarnation still held.
        reporters = await executors.same_instance(t, incarnation)
        strays = _strays(reports, live, reporters)
    known = await _find_attempts(t, strays) if strays else {}
    rule = await retry_rule(t, definitions, live.values())
    return decide.plan(reports, live, known, reporters=reporters, rule=rule, same=_same)


def _strays(reports: Sequence[Report], live: Mapping[int, LiveRun], reporters: frozenset[str]) -> list[AttemptKey]:
    return [r.key for r in reports if not decide.holds(live.get(r.key.run_id), r.key, reporters)]


async def _find_attempts(t: Tx, keys: Sequence[AttemptKey]) -> dict[AttemptKey, KnownAttempt]:
    rows = await attempts.lookup(t, keys)
    orphans = await attempts.kept_orphans(t, keys)
    return {key: KnownAttempt(row.incarnation, row.outcome, orphans.get(key)) for key, row in rows.items()}


def _same(outcome: Outcome, stored: Mapping[str, Any]) -> bool:
    return runs_finish.outcome_json(outcome) == stored
