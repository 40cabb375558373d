"""What a batch of reports from one executor means for its attempts and runs (docs/fencing.md 3.10).

A report counts only for the (run, token) that PostgreSQL holds for that executor. An outcome implies the start. A lost attempt goes by way of
ORPHANED, so that losses are counted in one place (reap).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind, StepResult
from toban_domain.run import RunState
from toban_domain.transitions import CloseAttempt, Finish, LiveRun, Orphan, Release, Started

# Whether the retry of a run begins with the step that failed, and the seconds to wait before it.
RetryRule = Callable[[LiveRun], tuple[bool, float]]

_RESULTS = {
    OutcomeKind.SUCCEEDED: RunState.SUCCEEDED,
    OutcomeKind.FAILED: RunState.FAILED,
    OutcomeKind.TIMED_OUT: RunState.TIMED_OUT,
    OutcomeKind.CANCELED: RunState.CANCELED,
}
_HELD = frozenset({RunState.ASSIGNED, RunState.RUNNING, RunState.ORPHANED, RunState.CANCEL_REQUESTED})


class Answer(StrEnum):
    """The answer to a report. All but the last two are final, so that the executor's journal may forget the report."""

    ACCEPTED = "accepted"
    ALREADY_ACCEPTED = "already_accepted"
    ORPHAN_RESULT = "orphan_result"
    NOT_HELD = "not_held"
    # PostgreSQL refuses the data in every form. The executor keeps it in quarantine.
    REFUSED = "refused"
    # PostgreSQL cannot store it as it is now (no partition, no right): for the executor the same, until it is stored.
    NOT_STORED = "not_stored"

    @property
    def final(self) -> bool:
        """True when the report needs not be sent again."""
        return self not in (Answer.REFUSED, Answer.NOT_STORED)


@dataclass(frozen=True, slots=True)
class Report:
    """One report of one attempt: its start, or its outcome."""

    key: AttemptKey
    seq: int
    what: datetime | Outcome


@dataclass(frozen=True, slots=True)
class KnownAttempt:
    """An attempt as stored; `outcome` is its stored result and `orphan` a result that was kept but not applied."""

    incarnation: str | None
    outcome: Mapping[str, Any] | None
    orphan: Mapping[str, Any] | None = None


@dataclass(slots=True)
class ReportPlan:
    """The moves that a batch makes, and the answer to each of its reports, in order."""

    started: list[Started] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    closes: list[CloseAttempt] = field(default_factory=list)
    kept: list[tuple[AttemptKey, Outcome]] = field(default_factory=list)
    # ORPHANED runs whose attempt has ended as a loss: they wait for nothing any more.
    ended_waits: list[AttemptKey] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def certain_end(outcome: Outcome) -> RunState | None:
    """The state in which this outcome ends a run whatever held state it is in; None when that depends on the run."""
    return RunState.SUCCEEDED if outcome.kind is OutcomeKind.SUCCEEDED and not outcome.lost else None


def may_be_taken(run: LiveRun | None, report: Report) -> bool:
    """Whether this may be the success of an attempt that was lost, of a run that waits for its next one."""
    done = isinstance(report.what, Outcome) and certain_end(report.what) is not None
    return done and run is not None and run.state is RunState.PENDING and run.lost_count > 0


def holds(run: LiveRun | None, key: AttemptKey, reporters: frozenset[str]) -> bool:
    """True when PostgreSQL holds this attempt for the reporting executor."""
    return run is not None and run.state in _HELD and run.token == key.token and run.incarnation in reporters


def plan(
    reports: Sequence[Report],
    runs: Mapping[int, LiveRun],
    known: Mapping[AttemptKey, KnownAttempt],
    *,
    reporters: frozenset[str],
    rule: RetryRule,
    same: Callable[[Outcome, Mapping[str, Any]], bool],
) -> ReportPlan:
    """Decides a batch. `runs` are the live ones, locked; `known` are the attempts of reports that no live run holds.

    `reporters` are the incarnations of the reporting executor; `same` compares an outcome with a stored one.
    """
    made = ReportPlan()
    settled: dict[AttemptKey, Outcome] = {}
    # Attempts whose start needs no move of its own: an outcome implies it, or an earlier report has made it.
    begun = {report.key for report in reports if isinstance(report.what, Outcome)}
    for report in reports:
        run = runs.get(report.key.run_id)
        if run is None or not holds(run, report.key, reporters):
            made.answers.append(_not_held(made, report, known.get(report.key), reporters, same))
        elif isinstance(report.what, datetime):
            made.answers.append(_started(made, report, report.what, run, begun))
        elif report.key in settled:
            made.answers.append(Answer.ALREADY_ACCEPTED if settled[report.key] == report.what else Answer.ORPHAN_RESULT)
        else:
            settled[report.key] = report.what
            _outcome(made, run, report.key.token, report.what, rule)
            made.answers.append(Answer.ACCEPTED)
    return made


def _not_held(
    made: ReportPlan,
    report: Report,
    attempt: KnownAttempt | None,
    reporters: frozenset[str],
    same: Callable[[Outcome, Mapping[str, Any]], bool],
) -> Answer:
    if attempt is None or attempt.incarnation not in reporters:
        return Answer.NOT_HELD
    if isinstance(report.what, datetime):
        return Answer.ALREADY_ACCEPTED if attempt.outcome is not None else Answer.NOT_HELD
    if attempt.outcome is not None and same(report.what, attempt.outcome):
        return Answer.ALREADY_ACCEPTED
    if attempt.orphan is None:
        made.kept.append((report.key, report.what))
    return Answer.ORPHAN_RESULT


def _started(made: ReportPlan, report: Report, at: datetime, run: LiveRun, begun: set[AttemptKey]) -> Answer:
    if run.state is RunState.ORPHANED:
        return Answer.NOT_HELD
    if run.state is RunState.ASSIGNED and report.key not in begun:
        begun.add(report.key)
        made.started.append(Started(run_id=run.id, token=report.key.token, at=at))
        return Answer.ACCEPTED
    return Answer.ACCEPTED if run.state is RunState.ASSIGNED else Answer.ALREADY_ACCEPTED


def _outcome(
    made: ReportPlan,
    run: LiveRun,
    token: int,
    outcome: Outcome,
    rule: RetryRule,
) -> None:
    if run.state is RunState.CANCEL_REQUESTED:
        made.finishes.append(_after_cancel(run, token, outcome))
    elif outcome.never_started and run.state is RunState.ASSIGNED:
        made.releases.append(goes_back(run, token, outcome))
        made.closes.append(close(run, token, outcome, "REVOKED"))
    elif run.next_step is not None and outcome.kind is OutcomeKind.SUCCEEDED:
        outcome = with_step(outcome, run.next_step - 1)
        made.closes.append(close(run, token, outcome, outcome.kind.value))
        made.releases.append(goes_on(run, token, outcome))
    elif outcome.lost:
        if not outcome.tree_empty:
            # Some of its processes may still be alive: only the fence lets the run go on elsewhere.
            if run.state is RunState.ASSIGNED:
                made.started.append(Started(run_id=run.id, token=token, at=outcome.started_at or outcome.finished_at))
        elif run.state is RunState.ORPHANED:
            made.ended_waits.append(AttemptKey(run.id, token))
        else:
            made.orphans.append(Orphan(run_id=run.id, source=run.state, token=token, message=outcome.reason.value))
        made.closes.append(close(run, token, outcome, "LOST"))
    elif _may_retry(run, outcome):
        made.closes.append(close(run, token, outcome, outcome.kind.value))
        resumes, delay = rule(run)
        made.releases.append(retry(run, token, outcome, delay, resumes=resumes))
    else:
        made.finishes.append(_result(run, token, outcome))


def _may_retry(run: LiveRun, outcome: Outcome) -> bool:
    """No retry beside processes that may still be alive."""
    failed = outcome.kind in (OutcomeKind.FAILED, OutcomeKind.TIMED_OUT)
    return failed and outcome.tree_empty and run.attempt < run.max_attempts


def retry(run: LiveRun, token: int, outcome: Outcome, delay: float, *, resumes: bool) -> Release:
    """The next attempt, `delay` seconds later: from the first step, or where it `resumes` from the one that failed."""
    failed = outcome.steps[-1].index if outcome.steps else None
    return Release(
        run_id=run.id,
        source=run.state,
        token=token,
        attempt=run.attempt + 1,
        lost_count=run.lost_count,
        delay_seconds=delay,
        event="retry",
        message=f"attempt {run.attempt} of {run.max_attempts} {outcome.kind.value}, next in {delay:g} s",
        started_at=outcome.started_at,
        # A dispatch of one step does not name it: it is the one with which the dispatch began.
        first_step=failed if resumes else 0,
    )


def goes_back(run: LiveRun, token: int, outcome: Outcome) -> Release:
    """The same attempt once more, elsewhere perhaps: the executor that had accepted it will not start it."""
    return Release(
        run_id=run.id,
        source=run.state,
        token=token,
        attempt=run.attempt,
        lost_count=run.lost_count,
        event="returned",
        message=outcome.error_summary,
    )


def goes_on(run: LiveRun, token: int, outcome: Outcome) -> Release:
    """The next steps of the same attempt, after a dispatch that has done its own."""
    assert run.next_step is not None
    return Release(
        run_id=run.id,
        source=run.state,
        token=token,
        attempt=run.attempt,
        lost_count=run.lost_count,
        event="step_done",
        message=f"goes on with step {run.next_step + 1}",
        started_at=outcome.started_at,
        first_step=run.next_step,
        keeps_limits=True,
        result_json=outcome.result_json,
    )


def with_step(outcome: Outcome, index: int) -> Outcome:
    """The outcome of a dispatch of one step among others: executors name steps only where they were sent more than one."""
    if outcome.steps:
        return outcome
    started = outcome.started_at or outcome.finished_at
    step = StepResult(index, started, outcome.finished_at, outcome.exit_code, outcome.signal, 1, outcome.last_seq)
    return replace(outcome, steps=(step,))


def _result(run: LiveRun, token: int, outcome: Outcome) -> Finish:
    # No cancel was requested, so one that the executor made by itself is a failure.
    kind = OutcomeKind.FAILED if outcome.kind is OutcomeKind.CANCELED else outcome.kind
    return finish(run, token, outcome, _RESULTS[kind])


def _after_cancel(run: LiveRun, token: int, outcome: Outcome) -> Finish:
    """CANCELED needs the word that the tree is empty; a job that ended by itself first keeps its result."""
    stopped = outcome.kind is OutcomeKind.CANCELED or outcome.lost
    if run.next_step is not None and outcome.kind is OutcomeKind.SUCCEEDED:
        return replace(
            finish(run, token, outcome, RunState.CANCELED, "no further step begins"), attempt_state="SUCCEEDED"
        )
    if stopped and outcome.tree_empty:
        return finish(run, token, outcome, RunState.CANCELED)
    if stopped:
        return finish(run, token, outcome, RunState.FAILED, "its process tree could not be verified empty")
    return finish(run, token, outcome, _RESULTS[outcome.kind])


def finish(run: LiveRun, token: int, outcome: Outcome, target: RunState, message: str = "") -> Finish:
    """The end of a run with the outcome of its attempt."""
    return Finish(
        run_id=run.id,
        source=run.state,
        token=token,
        target=target,
        reason=outcome.reason.value,
        error_summary=outcome.error_summary,
        message=message or outcome.error_summary,
        attempt_state=target.value,
        outcome=outcome,
    )


def close(run: LiveRun, token: int, outcome: Outcome, state: str) -> CloseAttempt:
    """The end of an attempt, or of a dispatch of it, whose run goes on."""
    return CloseAttempt(
        run_id=run.id,
        token=token,
        state=state,
        reason=outcome.reason.value,
        error_summary=outcome.error_summary,
        outcome=outcome,
    )
