"""What the end of a claim means for its run: an answer of its worker, or a lock that was not extended (docs/external-workers.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toban_coordinator.decide.runs.report import RetryRule, close, finish, goes_on, retry, with_step
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind, Reason
from toban_domain.run import RunState
from toban_domain.transitions import CloseAttempt, Finish, LiveRun, Release

ACCEPTED = "accepted"
ALREADY_ACCEPTED = "already_accepted"
_HELD = (RunState.WAITING_WORKER, RunState.CANCEL_REQUESTED)
_RESULTS = {
    OutcomeKind.SUCCEEDED: RunState.SUCCEEDED,
    OutcomeKind.FAILED: RunState.FAILED,
    OutcomeKind.TIMED_OUT: RunState.TIMED_OUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEnd:
    """What a worker says of its claim. `step` is the index of the step. An `outcome` CANCELED acknowledges a cancel."""

    key: AttemptKey
    worker: str
    outcome: Outcome
    step: int
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class EndedClaim:
    """An attempt as stored, of a claim that the run does not hold any more."""

    worker: str | None
    outcome: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one end: ACCEPTED, ALREADY_ACCEPTED, or "" for a refusal with its code and message."""

    result: str
    code: str = ""
    message: str = ""


@dataclass(slots=True)
class ClaimPlan:
    """The moves of a batch, and the answer to each of its ends, in order."""

    finishes: list[Finish] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    closes: list[CloseAttempt] = field(default_factory=list)
    # Cancelled runs whose lock ended without an acknowledgement.
    cancel_timeouts: list[int] = field(default_factory=list)
    # Runs whose lock ended, by what became of them: lost, timed_out, canceled.
    expired: dict[int, str] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)


def plan(
    ends: Sequence[ClaimEnd],
    runs: Mapping[int, LiveRun],
    known: Mapping[AttemptKey, EndedClaim],
    *,
    rule: RetryRule,
) -> ClaimPlan:
    """Decides a batch. `runs` are the live ones, locked; `known` are attempts of claims that no live run holds."""
    made = ClaimPlan()
    ended: dict[AttemptKey, ClaimEnd] = {}
    for end in ends:
        run = runs.get(end.key.run_id)
        if run is None or not _holds(run, end):
            made.answers.append(_not_held(end, known.get(end.key)))
        elif end.key in ended:
            stored = ended[end.key]
            made.answers.append(Answer(ALREADY_ACCEPTED) if _same(end, stored.outcome) else _lost(end))
        elif end.outcome.kind is OutcomeKind.CANCELED and run.state is not RunState.CANCEL_REQUESTED:
            text = f"no cancel of run {run.id} was asked for; call Complete or Fail"
            made.answers.append(Answer("", "RESOURCE_INVALID_STATE", text))
        else:
            ended[end.key] = end
            _end(made, run, end, rule)
            made.answers.append(Answer(ACCEPTED))
    return made


def _holds(run: LiveRun, end: ClaimEnd) -> bool:
    return run.state in _HELD and run.token == end.key.token and run.locked_by == end.worker


def _not_held(end: ClaimEnd, stored: EndedClaim | None) -> Answer:
    if stored is not None and stored.worker == end.worker and stored.outcome is not None:
        kind, result = stored.outcome.get("kind"), stored.outcome.get("result")
        said = json.loads(end.outcome.result_json) if end.outcome.result_json else None
        if kind == end.outcome.kind and said == result:
            return Answer(ALREADY_ACCEPTED)
    return _lost(end)


def _same(end: ClaimEnd, outcome: Outcome) -> bool:
    return (end.outcome.kind, end.outcome.result_json) == (outcome.kind, outcome.result_json)


def _lost(end: ClaimEnd) -> Answer:
    text = f"the claim of run {end.key.run_id} with token {end.key.token} is not held by worker {end.worker!r} any more"
    return Answer("", "CLAIM_LOST", f"{text}: drop its result")


def _end(made: ClaimPlan, run: LiveRun, end: ClaimEnd, rule: RetryRule) -> None:
    token, outcome = end.key.token, with_step(end.outcome, end.step)
    if run.state is RunState.CANCEL_REQUESTED:
        made.finishes.append(_after_cancel(run, token, outcome))
    elif outcome.kind is OutcomeKind.SUCCEEDED and run.next_step is not None:
        made.closes.append(close(run, token, outcome, outcome.kind.value))
        made.releases.append(goes_on(run, token, outcome))
    elif outcome.kind is not OutcomeKind.SUCCEEDED and end.retryable and run.attempt < run.max_attempts:
        made.closes.append(close(run, token, outcome, outcome.kind.value))
        resumes, delay = rule(run)
        made.releases.append(retry(run, token, outcome, delay, resumes=resumes))
    else:
        made.finishes.append(finish(run, token, outcome, _RESULTS[outcome.kind]))


def _after_cancel(run: LiveRun, token: int, outcome: Outcome) -> Finish:
    """A run whose last step is done has succeeded; any other end is the cancel's."""
    if outcome.kind is OutcomeKind.SUCCEEDED and run.next_step is None:
        return finish(run, token, outcome, RunState.SUCCEEDED)
    return finish(run, token, outcome, RunState.CANCELED)


def expired(
    run: LiveRun, *, claimed_at: datetime, timed_out: bool, last_seq: int, now: datetime, rule: RetryRule
) -> ClaimPlan:
    """The end of a lock: a cancel is over, a timeout has passed, or the worker is lost, which uses no retry. `last_seq`: its last log line."""
    made = ClaimPlan()
    assert run.token is not None
    if run.state is RunState.CANCEL_REQUESTED:
        outcome = _outcome(
            OutcomeKind.CANCELED,
            Reason.CANCELED,
            "the worker did not acknowledge the cancel",
            claimed_at,
            now,
            last_seq,
        )
        made.cancel_timeouts.append(run.id)
        made.expired[run.id] = "canceled"
        made.finishes.append(finish(run, run.token, with_step(outcome, run.first_step), RunState.CANCELED))
    elif timed_out:
        text = "the timeout of its external step passed"
        outcome = _outcome(OutcomeKind.TIMED_OUT, Reason.TIMEOUT, text, claimed_at, now, last_seq)
        key = AttemptKey(run.id, run.token)
        made.expired[run.id] = "timed_out"
        _end(made, run, ClaimEnd(key=key, worker=run.locked_by or "", outcome=outcome, step=run.first_step), rule)
    else:
        made.expired[run.id] = "lost"
        _lose(made, run, run.token)
    return made


def _lose(made: ClaimPlan, run: LiveRun, token: int) -> None:
    if run.lost_count >= run.max_lost:
        text = f"lost its worker {run.lost_count + 1} times, max_lost is {run.max_lost}"
        made.finishes.append(
            Finish(
                run_id=run.id,
                source=run.state,
                token=token,
                target=RunState.EXPIRED,
                reason="lost",
                error_summary=text,
                message="the worker's lock ended, no repeat left",
                attempt_state="LOST",
            )
        )
        return
    made.closes.append(CloseAttempt(run_id=run.id, token=token, state="LOST", reason=Reason.LEASE_LOST.value))
    made.releases.append(
        Release(
            run_id=run.id,
            source=run.state,
            token=token,
            attempt=run.attempt,
            lost_count=run.lost_count + 1,
            event="lock_expired",
            message=f"worker {run.locked_by} did not extend its lock, repeat {run.lost_count + 1} of {run.max_lost}",
            keeps_limits=True,
        )
    )


def withdraw(run: LiveRun, why: str) -> Release:
    """WAITING_WORKER, offered → PENDING: from there it can be skipped or cancelled."""
    return Release(
        run_id=run.id,
        source=run.state,
        token=run.token,
        attempt=run.attempt,
        lost_count=run.lost_count,
        event="withdrawn",
        message=why,
    )


def _outcome(
    kind: OutcomeKind, reason: Reason, summary: str, started: datetime, now: datetime, last_seq: int
) -> Outcome:
    return Outcome(
        kind=kind, reason=reason, error_summary=summary, started_at=started, finished_at=now, last_seq=last_seq
    )
