"""ExternalWork.Complete, Fail and AcknowledgeCancel: ends of claims, committed in groups. Each write is conditional on (run, token, worker)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from toban_coordinator.app.adaptive_batch import split_on_refusal
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.external.claim_names import check_count, check_worker
from toban_coordinator.app.metrics import count_finished
from toban_coordinator.app.runs.report_queue import storable_json
from toban_coordinator.app.runs.results import ResultChecks
from toban_coordinator.app.runs.retry_rules import retry_rule
from toban_coordinator.decide.external import external as decide
from toban_coordinator.decide.external.external import ACCEPTED, Answer, ClaimEnd, ClaimPlan, EndedClaim
from toban_coordinator.decide.runs.report import Report, with_step
from toban_coordinator.ports.claim_logs import ClaimLogs, LogPlace
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.external.external_claims import ClaimName, HeldClaim
from toban_coordinator.store.runs import attempts, runs_finish
from toban_domain.errors import ErrorCode
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind, Reason
from toban_domain.transitions import LiveRun
from toban_runtime.group_commit import GroupCommit, GroupLimits
from toban_store.errors import Refused
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

MAX_STEPS = 500
MAX_BATCH = 1000
MAX_SUMMARY = 2000
_REASONS = {
    OutcomeKind.SUCCEEDED: Reason.NONE,
    OutcomeKind.FAILED: Reason.WORKER_FAILED,
    OutcomeKind.CANCELED: Reason.CANCELED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfStep:
    """What a worker says of one claim: SUCCEEDED with a result (JSON, "" = none), FAILED with an error, or CANCELED."""

    key: AttemptKey
    kind: OutcomeKind
    result_json: str = ""
    error: str = ""
    retryable: bool = True


class ClaimEnds:
    """Ends of claims on one coordinator; `now` is PostgreSQL's time."""

    def __init__(self, *, pool: Pool, logs: ClaimLogs, now: Callable[[], datetime]) -> None:
        self._pool = pool
        self._logs = logs
        self._now = now
        self._definitions = DefinitionCache()
        self._results = ResultChecks(pool=pool, definitions=self._definitions)
        self._group: GroupCommit[Sequence[ClaimEnd], list[Answer]] = GroupCommit(
            self._commit,
            limits=GroupLimits(max_items=MAX_BATCH, max_size=MAX_BATCH),
            size_of=len,
            name="ends of claims",
        )

    async def end(self, worker: str, steps: Sequence[EndOfStep]) -> list[Answer]:
        """The answers to `steps`, in their order, after the commit.

        Raises INVALID_ARGUMENT; any other TobanError when nothing was committed, or that is unknown: the same call may be sent again.
        """
        check_worker(worker)
        check_count(steps, MAX_STEPS, "steps")
        if not steps:
            return []
        ends = [self._read(worker, step) for step in steps]
        answers = iter(await self._group.submit([end for end in ends if isinstance(end, ClaimEnd)]))
        return [end if isinstance(end, Answer) else next(answers) for end in ends]

    def _read(self, worker: str, step: EndOfStep) -> ClaimEnd | Answer:
        result = storable_json(step.result_json)
        if step.result_json and not result:
            text = f"the result of run {step.key.run_id} is not JSON of at most 32 KiB"
            return Answer("", ErrorCode.INVALID_ARGUMENT, text)
        outcome = Outcome(
            kind=step.kind,
            reason=_REASONS[step.kind],
            exit_code=0 if step.kind is OutcomeKind.SUCCEEDED else None,
            error_summary=step.error.replace("\0", "�")[:MAX_SUMMARY],
            finished_at=self._now(),
            result_json=result,
        )
        return ClaimEnd(key=step.key, worker=worker, outcome=outcome, step=0, retryable=step.retryable)

    async def _commit(self, calls: Sequence[Sequence[ClaimEnd]]) -> list[list[Answer]]:
        answers: list[Answer] = []

        async def write(part: Sequence[ClaimEnd]) -> None:
            answers.extend(await self._write(part))

        async def alone(_end: ClaimEnd, error: Refused) -> None:
            answers.append(Answer("", ErrorCode.INVALID_ARGUMENT, f"PostgreSQL does not store it: {error.message}"))

        await split_on_refusal([end for call in calls for end in call], write, alone, refusals=(Refused,))
        rest = iter(answers)
        return [[next(rest) for _ in call] for call in calls]

    async def _write(self, ends: Sequence[ClaimEnd]) -> list[Answer]:
        async with autocommit(self._pool) as t:
            held = await external_claims.held(t, {end.key.run_id for end in ends})
            await self._definitions.find(t, {(one.definition_id, one.definition_version) for one in held.values()})
        ends = await self._checked([self._known(end, held.get(ClaimName(end.key, end.worker))) for end in ends])
        ended = await self._end_certain(ends, held)
        rest = [end for end in ends if end.key not in ended]
        answers = iter(await self._end_rest(rest) if rest else [])
        found = [Answer(ACCEPTED) if end.key in ended else next(answers) for end in ends]
        self._seal(ends, found, held)
        return [_explained(end, answer) for end, answer in zip(ends, found, strict=True)]

    def _seal(self, ends: Sequence[ClaimEnd], answers: Sequence[Answer], held: Mapping[ClaimName, HeldClaim]) -> None:
        """The logs of claims that have ended get no more lines."""
        for end, answer in zip(ends, answers, strict=True):
            one = held.get(ClaimName(end.key, end.worker))
            if answer.result == ACCEPTED and one is not None and one.last_seq:
                self._logs.seal(LogPlace(end.key, one.log_day), one.last_seq)

    def _known(self, end: ClaimEnd, held: HeldClaim | None) -> ClaimEnd:
        """With what its run says: which step it is, since when it was claimed, and whether its result has a schema."""
        if held is None:
            return end
        spec = self._definitions.known((held.definition_id, held.definition_version))
        is_last = held.next_step is None
        expected = is_last and spec is not None and spec.result_schema is not None
        outcome = replace(end.outcome, started_at=held.claimed_at, result_expected=expected, last_seq=held.last_seq)
        if not is_last or held.step > 0:
            outcome = with_step(outcome, held.step)
        return replace(end, outcome=outcome, step=held.step)

    async def _checked(self, ends: Sequence[ClaimEnd]) -> list[ClaimEnd]:
        """Results against their schemas, as those of jobs."""
        reports = await self._results.checked([Report(end.key, 1, end.outcome) for end in ends])
        outcomes = [report.what for report in reports if isinstance(report.what, Outcome)]
        return [replace(end, outcome=outcome) for end, outcome in zip(ends, outcomes, strict=True)]

    async def _end_certain(self, ends: Sequence[ClaimEnd], held: Mapping[ClaimName, HeldClaim]) -> set[AttemptKey]:
        """Successes of last steps need no look at their runs: one statement ends them."""
        times = Counter(end.key for end in ends)
        certain = {
            ClaimName(end.key, end.worker): end.outcome
            for end in ends
            if end.outcome.kind is OutcomeKind.SUCCEEDED and times[end.key] == 1 and _is_last(end, held)
        }
        if not certain:
            return set()
        async with autocommit(self._pool) as t:
            finished = await runs_finish.finish_claimed(t, [(*name, outcome) for name, outcome in certain.items()])
        count_finished(finished, self._definitions.known)
        moved = {run.id for run in finished}
        return {name.key for name in certain if name.key.run_id in moved}

    async def _end_rest(self, ends: Sequence[ClaimEnd]) -> list[Answer]:
        async with tx(self._pool) as t:
            live = await runs_finish.lock_live(t, sorted({end.key.run_id for end in ends}))
            stored = await attempts.lookup(t, [end.key for end in ends if not _is_held(live.get(end.key.run_id), end)])
            known = {key: EndedClaim(row.worker, row.outcome) for key, row in stored.items()}
            plan = decide.plan(ends, live, known, rule=await retry_rule(t, self._definitions, live.values()))
            finished = await apply_plan(t, plan)
        count_finished(finished, self._definitions.known)
        return plan.answers


async def apply_plan(t: Tx, plan: ClaimPlan) -> list[runs_finish.Finished]:
    """The moves of a plan."""
    finished = await runs_finish.finish(t, plan.finishes)
    # Before the run forgets its token.
    await attempts.close(t, plan.closes)
    await runs_finish.release(t, plan.releases)
    if plan.releases:
        await t.notify("assign")
    return finished


def _is_last(end: ClaimEnd, held: Mapping[ClaimName, HeldClaim]) -> bool:
    one = held.get(ClaimName(end.key, end.worker))
    return one is not None and one.next_step is None


def _is_held(run: LiveRun | None, end: ClaimEnd) -> bool:
    return run is not None and run.token == end.key.token and run.locked_by == end.worker


def _explained(end: ClaimEnd, answer: Answer) -> Answer:
    """The worker learns that its result did not fit: the attempt has failed by it."""
    if answer.result == ACCEPTED and end.outcome.reason is Reason.RESULT_INVALID:
        return replace(answer, code="RESULT_INVALID", message=end.outcome.error_summary)
    return answer
