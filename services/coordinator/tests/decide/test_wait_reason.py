"""Why a run waits: the first thing that stands in its way, in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_coordinator.decide.runs.wait_reason import LeaderSeen, WaitingRun, candidate_reason, checks, first_of
from toban_domain.job import SelectorSpec
from toban_domain.lease import ExecutorState
from toban_domain.placement import ExecutorLoad

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEADER = LeaderSeen(beaten_at=NOW, resigned=False, settled=True)
GPU = {"selector": SelectorSpec({"gpu": "a100", "zone": "b"})}


def executor(number: int, **fields: Any) -> ExecutorLoad:
    given = {
        "state": ExecutorState.ON,
        "slots": 4,
        "held": 0,
        "labels": {},
        "last_heartbeat_at": NOW,
        "instance": f"e{number}",
    }
    return ExecutorLoad(incarnation=f"i{number}", worker_id=number, address="h:1", load=0.0, **{**given, **fields})


def told(executors: list[ExecutorLoad], leader: LeaderSeen = LEADER, *, fresh: float = 2.0, **fields: Any) -> str:
    given = {"scheduled_for": NOW, "not_before": None, "selector": SelectorSpec()}
    return first_of(checks(WaitingRun(**{**given, **fields}), leader, executors, NOW, fresh=fresh))


def test_a_run_whose_time_has_not_come() -> None:
    assert told([], scheduled_for=NOW + timedelta(hours=1)) == "it is not due before 2030-01-01 01:00:00 UTC"
    again = told([], not_before=NOW + timedelta(seconds=8))
    assert again == "its next attempt is not due before 2030-01-01 00:00:08 UTC"


@pytest.mark.parametrize(
    "leader",
    [
        LeaderSeen(beaten_at=None, resigned=False, settled=True),
        LeaderSeen(beaten_at=NOW, resigned=True, settled=True),
        LeaderSeen(beaten_at=NOW - timedelta(seconds=4), resigned=False, settled=True),
    ],
)
def test_no_coordinator_leads(leader: LeaderSeen) -> None:
    assert told([executor(1)], leader).startswith("no coordinator leads, so nothing is started;")


def test_a_leader_on_a_database_that_failed_over() -> None:
    assert "failed over" in told([executor(1)], LeaderSeen(beaten_at=NOW, resigned=False, settled=False))


@pytest.mark.parametrize(
    ("executors", "said"),
    [
        ([], "no executor is registered; start one"),
        (
            [
                executor(1, drained=True),
                executor(2, state=ExecutorState.DRAINING),
                executor(3, state=ExecutorState.DETACHED),
                executor(4, last_heartbeat_at=NOW - timedelta(seconds=6)),
            ],
            "no executor takes work (1 detached, 2 draining, 1 silent); `toban executor list` shows them",
        ),
        (
            [executor(1, instance="e"), executor(2, instance="e", state=ExecutorState.CUT)],
            "no executor takes work (1 cut off, 1 with its former process not over); `toban executor list` shows them",
        ),
        (
            [executor(1, held=4), executor(2, slots=1, held=1), executor(3, drained=True)],
            "all slots of the executors that take work are busy (5 of 5 on 2)",
        ),
        (
            [executor(1, held=4), executor(2)],
            "nothing stands in its way: the leader places it in its next turns; if it stays, ask `toban doctor`",
        ),
    ],
)
def test_no_executor_takes_it(executors: list[ExecutorLoad], said: str) -> None:
    assert told(executors) == said


def test_an_executor_is_silent_when_it_gets_no_work_for_it() -> None:
    late = executor(1, last_heartbeat_at=NOW - timedelta(seconds=3))
    assert told([late]) == "no executor takes work (1 silent); `toban executor list` shows them"
    assert told([late], fresh=4.0).startswith("nothing stands in its way")


def test_labels_that_no_executor_has_are_named() -> None:
    missing = told([executor(1, labels={"gpu": "a100"})], **GPU)
    assert missing.startswith("no executor has the labels of its selector (gpu=a100, zone=b);")
    has = {"labels": {"gpu": "a100", "zone": "b"}}
    drained = told([executor(1), executor(2, drained=True, **has)], **GPU)
    assert drained == "no executor with the labels of its selector (gpu=a100, zone=b) takes work (1 draining)"
    busy = told([executor(1), executor(2, held=4, **has)], **GPU)
    assert busy == "all slots of the executors that have its labels are busy (4 of 4 on 1)"


def test_a_group_runs_only_jobs_with_its_job_labels() -> None:
    card = executor(1, labels={"pool": "card"}, group="card", job_labels={"team": "pay"})
    own, other = (SelectorSpec({"pool": "card"}, job_labels={"team": team}) for team in ("pay", "web"))
    assert told([card], selector=own).startswith("nothing stands in its way")
    assert candidate_reason(card, [card], own, NOW, 2.0) == ""
    for selector in (other, SelectorSpec()):
        said = told([card], selector=selector)
        assert "(group 'card': jobs with the labels team=pay)" in said
        reason = candidate_reason(card, [card], selector, NOW, 2.0)
        assert reason == "its group 'card' runs jobs with the labels team=pay only"


def test_an_isolated_job_needs_an_executor_of_that_class() -> None:
    alone = SelectorSpec(isolation="isolated")
    forged, other = executor(1, labels={"isolation": "isolated"}), executor(2, labels={"gpu": "a100", "zone": "b"})
    assert told([forged, other], selector=alone) == (
        "no executor of class isolated fits the job (executors 1, 2 fit otherwise, but are shared); start one of class isolated, "
        "or take `isolation: isolated` out of the job"
    )
    named = SelectorSpec({"gpu": "a100"}, isolation="isolated")
    assert "(executor 2 fits otherwise, but is shared)" in told([forged, other], selector=named)
    reasons = [candidate_reason(one, [forged, other], named, NOW, 2.0) for one in (forged, other)]
    assert reasons == ["lacks gpu=a100", "is of class shared, and the job needs isolation: isolated"]
    box = executor(3, isolation="isolated")
    assert told([other, box], selector=alone).startswith("nothing stands in its way")
    drained = told([other, executor(3, isolation="isolated", drained=True)], selector=alone)
    assert drained == "no executor of class isolated takes work (1 draining)"
    busy = told([other, executor(3, isolation="isolated", held=4)], selector=alone)
    assert busy == "all slots of the executors of class isolated that take work are busy (4 of 4 on 1)"


def test_containers_need_an_executor_with_an_engine_which_runs_nothing_else() -> None:
    engine = executor(2, labels={"toban.dev/steps": "container"})
    boxes = SelectorSpec(steps="container")
    assert told([executor(1)], selector=boxes) == (
        "no executor has the labels of its selector (toban.dev/steps=container); start one with SCHEDULER_CONTAINER_ENGINE, or change the job"
    )
    assert told([executor(1), engine], selector=boxes).startswith("nothing stands in its way")
    assert told([engine]).startswith("every executor that takes work runs container or kubernetes steps only")
    assert candidate_reason(engine, [engine], SelectorSpec(), NOW, 2.0).startswith(
        "runs jobs with container steps only"
    )
    assert candidate_reason(executor(1), [executor(1)], boxes, NOW, 2.0) == "lacks toban.dev/steps=container"
    cluster, pods = executor(3, labels={"toban.dev/steps": "kubernetes"}), SelectorSpec(steps="kubernetes")
    assert "start one with SCHEDULER_KUBERNETES_API" in told([engine], selector=pods)
    assert told([engine, cluster], selector=pods).startswith("nothing stands in its way")
    assert candidate_reason(cluster, [cluster], SelectorSpec(), NOW, 2.0).startswith("runs jobs with kubernetes steps")


def test_a_definition_that_cannot_be_read() -> None:
    assert "cannot be read" in told([executor(1)], selector=None)


def test_a_refusal_is_told_while_it_is_fresh() -> None:
    refusal = {"refused_at": NOW - timedelta(seconds=3), "refusal": "DISK_FULL: no room"}
    said = "an executor refused it at 2029-12-31 23:59:57 UTC (DISK_FULL: no room); it is placed again"
    assert told([executor(1)], **refusal) == said
    assert "refused" not in told([executor(1)], **{**refusal, "refused_at": NOW - timedelta(seconds=61)})
