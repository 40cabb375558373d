"""Decisions about reports, orphans and firing: tables and properties."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_coordinator.decide.placement import dispatch
from toban_coordinator.decide.runs import reap, report
from toban_coordinator.decide.runs.report import Answer, KnownAttempt, Report
from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind, Reason
from toban_domain.run import HELD, TRANSITIONS, RunState, can_move
from toban_domain.transitions import LiveRun

AT = datetime(2030, 1, 1, tzinfo=UTC)
ME, OTHER = "me", "other"


def live(state: RunState = RunState.RUNNING, **fields: Any) -> LiveRun:
    given = {"token": 7, "incarnation": ME, "attempt": 1, "max_attempts": 1, "lost_count": 0, "max_lost": 3}
    return LiveRun(id=1, state=state, definition_id=1, definition_version=1, **{**given, **fields})


def ended(kind: OutcomeKind = OutcomeKind.SUCCEEDED, **fields: Any) -> Outcome:
    return Outcome(kind=kind, finished_at=AT, **fields)


def decide(
    run: LiveRun | None,
    *what: datetime | Outcome,
    token: int = 7,
    known: Mapping[AttemptKey, KnownAttempt] | None = None,
) -> report.ReportPlan:
    reports = [Report(AttemptKey(1, token), n, item) for n, item in enumerate(what, 1)]
    runs = {} if run is None else {run.id: run}
    return report.plan(
        reports,
        runs,
        known or {},
        reporters=frozenset({ME}),
        rule=lambda run: (False, 2.0**run.attempt),
        same=lambda outcome, stored: stored == {"kind": outcome.kind.value},
    )


def target(plan: report.ReportPlan) -> str:
    """Where the one move of a plan leads, as `state` or `state+reason`."""
    moves = [*plan.finishes, *plan.releases, *plan.orphans, *plan.started]
    assert len(moves) <= 1
    if plan.finishes:
        return plan.finishes[0].target.value
    return "PENDING" if plan.releases else "ORPHANED" if plan.orphans else "RUNNING" if plan.started else "-"


K, S = OutcomeKind, RunState


@pytest.mark.parametrize(
    ("state", "kind", "reason", "goes"),
    [
        (S.ASSIGNED, K.SUCCEEDED, "", "SUCCEEDED"),
        (S.RUNNING, K.SUCCEEDED, "", "SUCCEEDED"),
        (S.ORPHANED, K.SUCCEEDED, "", "SUCCEEDED"),
        (S.CANCEL_REQUESTED, K.SUCCEEDED, "", "SUCCEEDED"),
        (S.RUNNING, K.FAILED, "exit_code", "FAILED"),
        (S.RUNNING, K.TIMED_OUT, "timeout", "TIMED_OUT"),
        (S.RUNNING, K.CANCELED, "canceled", "FAILED"),
        (S.RUNNING, K.FAILED, "lease_lost", "ORPHANED"),
        (S.ASSIGNED, K.FAILED, "forced_shutdown", "ORPHANED"),
        (S.ORPHANED, K.FAILED, "continuation_refused", "-"),
        (S.CANCEL_REQUESTED, K.CANCELED, "canceled", "CANCELED"),
        (S.CANCEL_REQUESTED, K.FAILED, "lease_lost", "CANCELED"),
        (S.CANCEL_REQUESTED, K.FAILED, "exit_code", "FAILED"),
        (S.CANCEL_REQUESTED, K.TIMED_OUT, "timeout", "TIMED_OUT"),
    ],
)
def test_outcomes(state: RunState, kind: OutcomeKind, reason: str, goes: str) -> None:
    plan = decide(live(state), ended(kind, reason=Reason(reason)))
    assert plan.answers == [Answer.ACCEPTED] and target(plan) == goes


def test_no_retry_beside_live_processes() -> None:
    run = live(max_attempts=3)
    assert target(decide(run, ended(K.FAILED))) == "PENDING"
    assert target(decide(run, ended(K.FAILED, tree_empty=False))) == "FAILED"
    assert target(decide(live(S.CANCEL_REQUESTED), ended(K.CANCELED, tree_empty=False))) == "FAILED"


@pytest.mark.seed(48)
def test_the_delay_is_that_of_the_retry_that_comes() -> None:
    [release] = decide(live(attempt=2, max_attempts=3), ended(K.FAILED)).releases
    assert (release.attempt, release.delay_seconds, release.lost_count) == (3, 4.0, 0)


def test_an_attempt_that_was_returned_starts_elsewhere_as_the_same_one() -> None:
    back = ended(K.FAILED, reason=Reason.LEASE_LOST, never_started=True, error_summary="no slot became free")
    made = decide(live(S.ASSIGNED, lost_count=1), back)
    [release], [close] = made.releases, made.closes
    assert (release.attempt, release.lost_count, release.delay_seconds, release.event) == (1, 1, 0.0, "returned")
    assert close.state == "REVOKED" and made.answers == [report.Answer.ACCEPTED]
    assert target(decide(live(S.CANCEL_REQUESTED), back)) == "CANCELED"
    assert target(decide(live(S.ORPHANED), back)) == "-"


def test_start_and_outcome_in_one_batch_make_one_move() -> None:
    plan = decide(live(S.ASSIGNED), AT, ended())
    assert plan.answers == [Answer.ACCEPTED] * 2 and target(plan) == "SUCCEEDED"


@pytest.mark.parametrize("state", [S.ASSIGNED, S.RUNNING])
def test_a_lost_tree_that_may_live_is_left_to_the_fence(state: RunState) -> None:
    plan = decide(live(state), ended(K.FAILED, reason=Reason.LEASE_LOST, tree_empty=False))
    assert plan.orphans == plan.finishes == plan.releases == []
    assert [close.state for close in plan.closes] == ["LOST"]
    assert [start.token for start in plan.started] == ([7] if state is S.ASSIGNED else [])


def test_twice_in_one_batch() -> None:
    assert decide(live(), ended(), ended()).answers == [Answer.ACCEPTED, Answer.ALREADY_ACCEPTED]
    assert decide(live(), ended(), ended(K.FAILED)).answers == [Answer.ACCEPTED, Answer.ORPHAN_RESULT]


def test_attempts_that_nothing_holds() -> None:
    key = AttemptKey(1, 7)
    assert decide(None, ended()).answers == [Answer.NOT_HELD]
    stored = {key: KnownAttempt(ME, {"kind": "SUCCEEDED"})}
    assert decide(None, ended(), known=stored).answers == [Answer.ALREADY_ACCEPTED]
    assert decide(None, AT, known=stored).answers == [Answer.ALREADY_ACCEPTED]
    late = decide(None, ended(K.FAILED), known=stored)
    assert late.answers == [Answer.ORPHAN_RESULT] and late.kept == [(key, ended(K.FAILED))]
    others = {key: KnownAttempt(OTHER, None)}
    assert decide(None, ended(), known=others).answers == [Answer.NOT_HELD]
    assert decide(live(S.ORPHANED), AT).answers == [Answer.NOT_HELD]


states = st.sampled_from([state for state in RunState if TRANSITIONS[state]])
outcomes = st.builds(
    Outcome,
    kind=st.sampled_from(OutcomeKind),
    reason=st.sampled_from(Reason),
    finished_at=st.just(AT),
    tree_empty=st.booleans(),
)
counts = st.integers(0, 4)


@given(
    state=states,
    what=st.lists(outcomes | st.just(AT), min_size=1, max_size=4),
    token=st.sampled_from([7, 8]),
    incarnation=st.sampled_from([ME, OTHER]),
    attempt=st.integers(1, 4),
    max_attempts=st.integers(1, 4),
)
def test_moves_are_in_the_table_and_one_a_run(
    state: RunState, what: list[Any], token: int, incarnation: str, attempt: int, max_attempts: int
) -> None:
    run = live(state, incarnation=incarnation, attempt=attempt, max_attempts=max_attempts)
    plan = decide(run, *what, token=token)
    moves = [
        *((m.source, m.target) for m in plan.finishes),
        *((m.source, S.PENDING) for m in plan.releases),
        *((m.source, S.ORPHANED) for m in plan.orphans),
        *((S.ASSIGNED, S.RUNNING) for _ in plan.started),
    ]
    assert len(moves) <= 1 and len(plan.answers) == len(what)
    assert all(source is state and can_move(source, goal) for source, goal in moves)
    assert not moves or (token == 7 and incarnation == ME and state in HELD | {S.ORPHANED})
    assert all(m.attempt == attempt + 1 <= max_attempts for m in plan.releases)
    assert all(m.lost_count == run.lost_count for m in plan.releases)


@given(what=outcomes, state=st.sampled_from(sorted(HELD | {S.ORPHANED})), attempt=st.integers(1, 3))
def test_a_certain_end_is_what_the_long_way_decides(what: Outcome, state: RunState, attempt: int) -> None:
    certain = report.certain_end(what)
    if certain is not None:
        [finish] = decide(live(state, attempt=attempt, max_attempts=3), what).finishes
        assert finish.target is certain


@given(lost=st.integers(0, 6), most=st.integers(0, 5))
def test_losses_are_bounded(lost: int, most: int) -> None:
    plan = reap.orphaned([live(S.ORPHANED, lost_count=lost, max_lost=most)])
    assert len(plan.releases) + len(plan.finishes) == 1
    assert all(m.lost_count == lost + 1 <= most and can_move(m.source, S.PENDING) for m in plan.releases)
    assert all(m.target is S.EXPIRED and lost >= most for m in plan.finishes)


@given(state=states, token=st.sampled_from([None, 7]))
def test_runs_of_executors_that_are_off(state: RunState, token: int | None) -> None:
    plan = reap.executor_off([live(state, token=token)])
    assert all(m.source is state and m.token is None and can_move(state, S.PENDING) for m in plan.releases)
    assert all(m.source is state and can_move(state, m.target) for m in plan.finishes)
    assert all(m.source is state and can_move(state, S.ORPHANED) for m in plan.orphans)
    assert len(plan.orphans) == len(plan.closes)


@given(state=states, refusal=st.sampled_from(["NO_SLOT", "DRAINING", "TOMBSTONE"]))
def test_refused_starts(state: RunState, refusal: str) -> None:
    move, close = dispatch.refused(live(state), refusal, "")
    if move is not None:
        goal = getattr(move, "target", S.PENDING)
        assert move.source is state and can_move(state, goal)
    assert (close is not None) == (state is S.ASSIGNED)


def test_far_over_the_timeout() -> None:
    from toban_domain.job import JobSpec, StepSpec

    spec = JobSpec(name="x", steps=(StepSpec(id="a", body={"argv": ["/bin/true"]}),))
    late = reap.Overdue(live(), AT, 10)
    assert reap.overdue(late, spec, AT + timedelta(seconds=80)) is None
    assert reap.overdue(late, spec, AT + timedelta(seconds=81)) is not None
    assert reap.overdue(reap.Overdue(live(), AT, 0), spec, AT + timedelta(days=9)) is None
