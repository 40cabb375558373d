"""The page of a job: versions with what changed, a map of days, the next slots."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.clock import today


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
    web.cluster.reader.responses["GetJobDays"] = pb.JobDays(
        days=[pb.JobDay(day=day.isoformat(), succeeded=100, failed=2)]
    )
    text = web.page("/jobs/hello")
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.GetJobDaysRequest)]
    assert (request.name, request.days) == ("hello", 91)
    assert text.count('<rect class="none"') >= 89 and text.count('<rect class="mixed"') == 1
    assert f"{day} · 100+ succeeded, 2 failed, 0 canceled or skipped" in text
    assert f'href="/runs?job=hello&amp;since={day}T00:00' in text


def test_a_job_without_ended_runs_says_what_will_be_there(web: Any) -> None:
    assert "Each day gets a square here" in web.page("/jobs/hello")


def test_an_older_coordinator_has_neither_versions_nor_days_nor_slots(web: Any) -> None:
    assert "/jobs/hello/versions" in web.page("/jobs/hello")
    for method in ("ListJobVersions", "GetJobDays", "NextSlots"):
        web.refuse(method, ErrorCode.UNIMPLEMENTED)
    text = web.page("/jobs/hello")
    assert "days-title" not in text and "coming-title" not in text and "/jobs/hello/versions" not in text


def test_the_next_slots_of_all_its_schedules_are_in_their_order(web: Any) -> None:
    schedules = [web.schedule(name=name) for name in ("late", "early")] + [web.schedule(name="off", status="paused")]
    ahead = {"late": [-300, -600], "early": [-60, -400]}

    def slots(request: Any) -> pb.NextSlotsResponse:
        return pb.NextSlotsResponse(slots=[pb.NextSlot(at=web.stamp(one)) for one in ahead[request.name]])

    web.cluster.reader.responses |= {"GetJob": web.job(schedules=schedules), "NextSlots": slots}
    text = web.page("/jobs/hello")
    shown = re.search(r'<ol class="coming">(.*?)</ol>', text, re.DOTALL)
    assert shown and re.findall(r'href="/schedules/([a-z]+)"', shown[1]) == ["early", "late", "early", "late"]
    web.cluster.reader.responses["GetJob"] = web.job(schedules=schedules, enabled=False)
    assert "coming-title" not in web.page("/jobs/hello")


def test_of_many_schedules_the_one_that_fires_next_is_first(web: Any) -> None:
    ahead = {f"crowd-{number}": 3600 + number for number in range(30)} | {"zebra": 60}
    schedules = [web.schedule(name=name, next_run_at=web.stamp(-seconds)) for name, seconds in ahead.items()]

    def slots(request: Any) -> pb.NextSlotsResponse:
        return pb.NextSlotsResponse(slots=[pb.NextSlot(at=web.stamp(-ahead[request.name]))])

    web.cluster.reader.responses |= {"GetJob": web.job(schedules=schedules), "NextSlots": slots}
    shown = re.search(r'<ol class="coming">(.*?)</ol>', web.page("/jobs/hello"), re.DOTALL)
    assert shown
    assert re.findall(r'href="/schedules/([a-z0-9-]+)"', shown[1]) == ["zebra", *(f"crowd-{n}" for n in range(7))]
    assert sum(isinstance(one, pb.NextSlotsRequest) for one in web.cluster.reader.requests) == 8
