"""The page of a job: versions with what changed, a map of days, the next slots."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.clock import today

MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def versioned(web: Any) -> Any:
    """A site with a job that has had the versions 5, 3 and 2."""

    def versions(request: Any) -> pb.ListJobVersionsResponse:
        below = int(request.page.cursor or 99)
        found = [
            pb.JobVersion(
                version=number,
                spec_json=json.dumps({"name": "hello", "description": f"<b>{number}</b>", "priority": 1}),
                created_by="user <ada>",
                created_at=web.stamp(60),
            )
            for number in (5, 3, 2)
            if number < below
        ]
        return pb.ListJobVersionsResponse(versions=found[: request.page.limit])

    web.cluster.reader.responses["ListJobVersions"] = versions
    return web


def changed(text: str) -> list[str]:
    """The lines of a page that came or went."""
    return re.findall(r'<span class="(?:came|went)">([^<]*)</span>', text)


def test_the_newest_version_is_compared_with_the_one_before(versioned: Any) -> None:
    assert 'href="/jobs/hello/versions"' in versioned.page("/jobs/hello")
    text = versioned.page("/jobs/hello/versions")
    assert "From version 3 to 5" in text and "user &lt;ada&gt;" in text and "<b>5" not in text
    assert len(changed(text)) == 2 and "&lt;b&gt;3" in changed(text)[0] and "&lt;b&gt;5" in changed(text)[1]


def test_any_two_versions_are_compared(versioned: Any) -> None:
    text = versioned.page("/jobs/hello/versions?version=5&before=2")
    assert "From version 2 to 5" in text and "&lt;b&gt;2" in changed(text)[0]
    text = versioned.page("/jobs/hello/versions?version=3&before=3")
    assert "Nothing differs." in text
    assert "There is no earlier version." in versioned.page("/jobs/hello/versions?version=2")


@pytest.mark.parametrize("number", ["4", "0", "-1", "x", "9" * 40, "٣", "1"])
def test_a_version_that_it_has_not_had_is_not_found(versioned: Any, number: str) -> None:
    assert versioned.get(f"/jobs/hello/versions?version={number}").status_code == 404
    assert versioned.get(f"/jobs/hello/versions?before={number}").status_code == 404


def test_the_days_are_squares_and_a_list(web: Any) -> None:
    day = today()
    days = [pb.JobDay(day=(day - timedelta(days=28)).isoformat(), succeeded=1)]
    days += [pb.JobDay(day=day.isoformat(), succeeded=100, failed=2)]
    web.cluster.reader.responses["GetJobDays"] = pb.JobDays(days=days)
    text = web.page("/jobs/hello")
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.GetJobDaysRequest)]
    assert (request.name, request.days) == ("hello", 91)
    assert text.count('<rect class="none"') >= 88 and text.count('<rect class="mixed"') == 1
    assert f"{day} · 100+ succeeded, 2 failed, 0 cancelled or skipped" in text
    assert f'href="/runs?job=hello&amp;since={day}T00:00' in text


def test_a_map_of_few_days_is_left_out(web: Any) -> None:
    assert "days-title" not in web.page("/jobs/hello")
    day = today() - timedelta(days=27)
    web.cluster.reader.responses["GetJobDays"] = pb.JobDays(days=[pb.JobDay(day=day.isoformat(), succeeded=1)])
    text = web.page("/jobs/hello")
    assert "days-title" not in text and "/jobs/hello/versions" in text


def test_the_parts_of_a_job_are_in_the_order_of_their_use(web: Any) -> None:
    web.cluster.reader.responses["ListTriggers"] = pb.ListTriggersResponse(
        triggers=[
            pb.Trigger(name="on-<paid>", job="hello", event_type="order.paid", enabled=True, last_error="no <field>"),
            pb.Trigger(name="of-another", job="other", event_type="order.paid", enabled=True),
        ]
    )
    text = web.page("/jobs/hello")
    parts = ("/jobs/hello/run", 'class="strip"', 'class="durations"', 'class="list', "schedules-title", "coming-title")
    places = [text.index(one) for one in (*parts, "triggers-title", "definition-title")]
    assert places == sorted(places)
    assert [one.job for one in web.asked(pb.ListTriggersRequest)] == ["hello"]
    assert "on-&lt;paid&gt;" in text and "no &lt;field&gt;" in text and "of-another" not in text
    assert "apiVersion: toban/v1" in text and text.index("apiVersion") > text.index("<details", places[-1])


def test_schedules_beyond_five_are_folded_and_the_next_is_first(web: Any) -> None:
    schedules = [web.schedule(name=f"s{number}", next_run_at=web.stamp(-900 + number)) for number in range(7)]
    schedules.append(web.schedule(name="a-paused", status="paused", next_run_at=None))
    web.cluster.reader.responses["GetJob"] = web.job(schedules=schedules)
    table = web.page("/jobs/hello").partition("schedules-title")[2].partition("coming-title")[0]
    shown, folded = table.split('<details class="fold" id="more-schedules"><summary>3 more schedules</summary>')
    names = r'class="name"><a href="/schedules/([a-z0-9-]+)"'
    assert re.findall(names, shown) == ["s6", "s5", "s4", "s3", "s2"]
    assert re.findall(names, folded) == ["s1", "s0", "a-paused"]
    web.cluster.reader.responses["GetJob"] = web.job(schedules=schedules[:5])
    assert "more-schedules" not in web.page("/jobs/hello")


@pytest.mark.parametrize(("enabled", "primary"), [(True, 1), (False, 0)])
def test_a_run_is_the_first_choice_only_of_an_enabled_job(web: Any, enabled: bool, primary: int) -> None:
    disabled = {} if enabled else {"disabled_at": web.stamp(60), "disabled_by": "ada"}
    web.cluster.reader.responses["GetJob"] = web.job(enabled=enabled, **disabled)
    assert web.page("/jobs/hello").count('<a class="button primary" href="/jobs/hello/run"') == primary
    text = web.page("/jobs/hello/run")
    assert text.count('<button class="primary">Start the run') == primary
    assert ('<a class="button primary" href="/jobs/hello/enable"' in text) is not enabled


def test_an_older_coordinator_has_neither_versions_nor_days_nor_slots(web: Any) -> None:
    assert "/jobs/hello/versions" in web.page("/jobs/hello")
    for method in ("ListJobVersions", "GetJobDays", "NextSlots"):
        web.refuse(method, ErrorCode.UNIMPLEMENTED)
    text = web.page("/jobs/hello")
    assert "days-title" not in text and "coming-title" not in text and "/jobs/hello/versions" not in text


def test_the_next_slots_of_all_its_schedules_are_in_their_order(web: Any) -> None:
    schedules = [web.schedule(name=name) for name in ("late", "early")]
    schedules.append(web.schedule(name="off", status="paused", next_run_at=None))
    end = {"status": "paused", "paused_until": web.stamp(-500), "next_run_at": web.stamp(-550)}
    schedules.append(web.schedule(name="ends", **end))
    ahead = {"late": [-300, -600], "early": [-60, -400], "ends": [-550]}

    def slots(request: Any) -> pb.NextSlotsResponse:
        # Slots within a pause are left out.
        if request.HasField("after"):
            assert request.name == "ends" and request.after.ToDatetime() == web.stamp(-550).ToDatetime() - MICROSECOND
        else:
            assert request.name != "ends"
        return pb.NextSlotsResponse(slots=[pb.NextSlot(at=web.stamp(one)) for one in ahead[request.name]])

    web.cluster.reader.responses |= {"GetJob": web.job(schedules=schedules), "NextSlots": slots}
    text = web.page("/jobs/hello")
    shown = re.search(r'<ol class="coming">(.*?)</ol>', text, re.DOTALL)
    assert shown and re.findall(r'href="/schedules/([a-z]+)"', shown[1]) == ["early", "late", "early", "ends", "late"]
    web.cluster.reader.responses["GetJob"] = web.job(schedules=schedules[2:3])
    assert "coming-title" not in web.page("/jobs/hello")


def test_of_many_schedules_the_one_that_fires_next_is_first(web: Any) -> None:
    ahead = {f"crowd-{number}": 3600 + number for number in range(30)} | {"zebra": 60}
    schedules = [web.schedule(name=name, next_run_at=web.stamp(-seconds)) for name, seconds in ahead.items()]

    def slots(request: Any) -> pb.NextSlotsResponse:
        return pb.NextSlotsResponse(slots=[pb.NextSlot(at=web.stamp(-ahead[request.name]))])

    web.cluster.reader.responses |= {"GetJob": web.job(schedules=schedules), "NextSlots": slots}
    shown = re.search(r'<ol class="coming">(.*?)</ol>', web.page("/jobs/hello"), re.DOTALL)
    assert shown
    assert re.findall(r'href="/schedules/([a-z0-9-]+)"', shown[1]) == ["zebra", *(f"crowd-{n}" for n in range(9))]
    assert sum(isinstance(one, pb.NextSlotsRequest) for one in web.cluster.reader.requests) == 10


def mark(web: Any, number: int, state: str, seconds: float = 0) -> pb.RunMark:
    """A run that has ended after some seconds, or goes on."""
    found = pb.RunMark(id=number, state=state, scheduled_for=web.stamp(600), started_at=web.stamp(600))
    if seconds:
        found.finished_at.CopyFrom(web.stamp(600 - seconds))
    return found


def test_a_job_is_a_line_with_its_last_runs(web: Any) -> None:
    marks = [mark(web, 9, "RUNNING"), mark(web, 8, "FAILED", 40), mark(web, 7, "SUCCEEDED", 10)]
    spec = json.dumps({"name": "hello", "labels": {"team": "<ops>", "a": "1"}})
    job = web.job(recent_runs=marks, next_run_at=web.stamp(-60), spec_json=spec)
    web.cluster.reader.responses["ListJobs"] = pb.ListJobsResponse(jobs=[job, web.job(name="idle", enabled=False)])
    text = web.page("/jobs")
    [request] = web.asked(pb.ListJobsRequest)
    assert (request.history, request.page.limit, request.sort) == (20, 50, "name")
    shown = re.findall(r'<a class="([a-z]+)" href="/runs/(\d+)" tabindex="-1" title="\d+ · (\w+)', text)
    assert shown == [("good", "7", "succeeded"), ("bad", "8", "failed"), ("busy", "9", "running")]
    assert "3 runs: 1 succeeded, 1 failed, 1 not ended, 0 cancelled or skipped" in text
    assert "50 %" in text and "10.0 s" in text and "40.0 s" in text
    assert re.findall(r'class="label" href="([^"]*)">([^<]*)', text) == [
        ("/jobs?label=a%3D1", "a=1"),
        ("/jobs?label=team%3D%3Cops%3E", "team=&lt;ops&gt;"),
    ]
    assert text.count('<tr class="off">') == 1 and "data-part" in text


def test_jobs_are_filtered_and_ordered(web: Any) -> None:
    web.cluster.reader.responses["ListJobs"] = pb.ListJobsResponse(jobs=[web.job()], next_cursor="infinity hello")
    text = web.page("/jobs?name=he&label=team%3Dops&failing=1&sort=next_run&cursor=2026-01-01T00:00:00%2B00:00+a")
    [request] = web.asked(pb.ListJobsRequest)
    assert (request.name, request.label, request.failing, request.disabled) == ("he", "team=ops", True, False)
    assert (request.sort, request.page.cursor) == ("next_run", "2026-01-01T00:00:00+00:00 a")
    query = "name=he&amp;label=team%3Dops&amp;"
    assert f'href="/jobs?{query}sort=next_run" aria-current="true"' in text, "the chip that is on leads to all"
    assert f'href="/jobs?{query}failing=1&amp;disabled=1&amp;sort=next_run"' in text
    assert f'href="/jobs?{query}failing=1&amp;sort=next_run&amp;cursor=infinity+hello"' in text
    assert '<input type="hidden" name="failing" value="1">' in text and 'aria-sort="ascending"' in text


def test_a_label_that_is_none_is_said_and_left_out(web: Any) -> None:
    text = web.page("/jobs?label=team")
    assert [one.label for one in web.asked(pb.ListJobsRequest)] == [""]
    assert "Write a label as key=value" in text and 'aria-invalid="true"' in text
    web.cluster.reader.responses["ListJobs"] = pb.ListJobsResponse()
    assert "No job matches these filters." in web.page("/jobs?disabled=1")


def test_coordinators_of_an_earlier_release_show_the_last_run_and_the_next_slot(web: Any) -> None:
    soon = web.stamp(-120)
    schedules = [web.schedule(name="late", next_run_at=web.stamp(-9000)), web.schedule(name="soon", next_run_at=soon)]
    web.cluster.reader.responses["ListJobs"] = pb.ListJobsResponse(jobs=[web.job(schedules=schedules)])
    text = web.page("/jobs")
    assert 'href="/runs/7"' in text and soon.ToDatetime().strftime("%Y-%m-%d %H:%M:%S") in text


@pytest.mark.parametrize("path", ["/schedules/hello-often", "/jobs/hello"])
def test_a_schedule_whose_rule_this_release_cannot_read_has_a_page(web: Any, path: str) -> None:
    web.refuse("NextSlots", ErrorCode.SCHEDULE_INVALID)
    assert "hello-often" in web.page(path)
