"""The first page: what needs attention, what a new cluster sees, and what older coordinators cannot say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import overview_message


def test_what_needs_attention_comes_first(web: Any) -> None:
    text = web.page("/")
    for seen in (
        "exit code 3",
        'href="/runs/9"',
        "no leader",
        "4 slots",
        "TobanQueueOld",
        "boom: no",
        "6 m 52 s",
        "hello-often",
    ):
        assert seen in text, seen
    link = re.search(r'href="(/runs\?[^"]*job=hello[^"]*)">3<', text)
    assert link and "state=unsuccessful" in link[1] and "since=20" in link[1]
    assert text.index("alerts-title") < text.index("failures-title") < text.index("running-title")
    [asked] = [one for one in web.cluster.reader.requests if isinstance(one, pb.ListRunsRequest)]
    assert list(asked.states) == ["RUNNING", "CANCEL_REQUESTED", "ORPHANED"]


def test_an_account_of_a_scope_is_named_and_a_recovery_shown(web: Any) -> None:
    failure = pb.FailedRuns(job="mail", scope="account", scope_id="17", runs=1, last_run_id=9, recovered=True)
    web.cluster.reader.responses["GetOverview"] = overview_message(failures=[failure], more_failures=True)
    text = web.page("/")
    assert "account:17" in text and "succeeded since" in text and "more failures than are listed" in text


@pytest.mark.parametrize(
    "words",
    ["No run failed", "No due run waits", "Every slot of the last 24 hours", "No schedule fires", "No run is running"],
)
def test_an_empty_dashboard_teaches(web: Any, words: str) -> None:
    web.cluster.reader.responses |= {"GetOverview": pb.Overview(), "ListRuns": pb.ListRunsResponse()}
    text = web.page("/")
    assert words in text and "alerts-title" not in text


def test_more_schedules_than_are_listed(web: Any) -> None:
    web.cluster.reader.responses["GetOverview"] = overview_message(coming_schedules=312)
    assert "312 fire in the next 24 hours" in web.page("/")


def test_older_coordinators_know_no_overview(web: Any) -> None:
    web.cluster.reader.responses["GetOverview"] = TobanError(ErrorCode.UNIMPLEMENTED, "unknown method")
    text = web.page("/")
    assert "older release" in text and "Workload" in text and "failures-title" not in text
    assert "No due run waits" not in text


@pytest.mark.parametrize("beat", [None, 20])
def test_without_an_active_leader_the_advice_comes_first(web: Any, beat: float | None) -> None:
    given = {"last_beat_at": None, "leader_address": ""} if beat is None else {"last_beat_at": web.stamp(beat)}
    web.cluster.reader.responses["GetCluster"] = web.whole(**given)
    text = web.page("/")
    advice = "No coordinator is the leader" if beat is None else "heartbeat is overdue"
    assert text.index(advice) < text.index("failures-title")


def test_texts_of_jobs_are_escaped(web: Any) -> None:
    evil = "<script>alert(1)</script>\u202e"
    overview = overview_message()
    overview.failures[0].MergeFrom(pb.FailedRuns(error_summary=evil, job=evil))
    overview.missed[0].MergeFrom(pb.MissedSlots(message=evil, schedule=evil))
    overview.alerts[0].name = evil
    web.cluster.reader.responses["GetOverview"] = overview
    text = web.page("/")
    assert "<script>alert" not in text and "&lt;script&gt;" in text
