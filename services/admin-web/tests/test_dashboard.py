"""The first page: what needs attention, what a new cluster sees, and what older coordinators cannot say."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

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
    assert 'href="/runs?state=waiting"' in text, "runs that wait for a limit are among those that the number counts"
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
    ["No run failed", "Every slot of the last 24 hours", "No schedule fires", "No run is running"],
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
    assert "older release" in text and "executors ready" in text and "failures-title" not in text


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


def test_the_last_day_as_a_picture(web: Any) -> None:
    hour = 1_795_960_800
    activity = [
        pb.ActivityInterval(begins_at=Timestamp(seconds=hour + 300 * n), succeeded=9, busy_slots=1.5) for n in range(12)
    ]
    activity[3].MergeFrom(pb.ActivityInterval(failed=1, wait_seconds=75.0))
    web.cluster.reader.responses["GetOverview"] = overview_message(activity=activity)
    text = web.page("/")
    assert "108 succeeded" in text and "at most 10 in five minutes" in text and "longest 1 m 15 s" in text
    at = datetime.fromtimestamp(hour + 900, UTC).strftime("%Y-%m-%dT%H:%M")
    until = datetime.fromtimestamp(hour + 1200, UTC).strftime("%Y-%m-%dT%H:%M")
    [link] = [one for one in re.findall(r'href="(/runs[^"]*)"', text) if at in one]
    assert "state=unsuccessful" in link and until in link, "a failure leads to its runs"
    assert '<path class="bad" d="M' in text and text.count('data-clock="') == 9


def test_schedules_of_one_minute_are_one_line(web: Any) -> None:
    fire = pb.ComingFire(schedule="crowd-1", job="sync-crm", at=web.stamp(-60), timezone="UTC", schedules=30)
    web.cluster.reader.responses["GetOverview"] = overview_message(coming=[fire], coming_schedules=31)
    text = web.page("/")
    assert '<a href="/jobs/sync-crm#schedules-title">30 schedules</a>' in text and "31 fire in" in text


def test_a_running_run_shows_how_far_it_is(web: Any) -> None:
    run = web.run(7, "RUNNING")
    run.started_at.CopyFrom(web.stamp(60))
    at = run.started_at.ToDatetime(UTC) + timedelta(seconds=30)
    run.progress_json = json.dumps({"percentage": 25, "summary": "part 2", "at": at.isoformat()})
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=[run])
    text = web.page("/")
    assert '<progress max="100" value="25.0"' in text and "part 2" in text
    assert re.search(r'data-label="expected to end"><span[^>]*>in ', text), "at its pace so far"


def test_a_new_cluster_shows_first_steps(web: Any) -> None:
    activity = [pb.ActivityInterval(begins_at=web.stamp(300), succeeded=1)]
    web.cluster.reader.responses["GetOverview"] = overview_message(activity=activity)
    text = web.page("/")
    assert "first-steps" in text and 'href="/new/job"' in text
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=[web.run(5000, "SUCCEEDED")])
    assert "first-steps" not in web.page("/"), "it is not new"
