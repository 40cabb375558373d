"""The map of coming load, and the page that spreads a crowded minute."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import load_message

SPREAD = "/load/spread?minute=2026-11-29T18:00&over=15"
STORED: dict[str, dict[str, Any]] = {
    "sync-00": {"daily_at": "18:00", "timezone": "Asia/Tokyo"},
    "sync-01": {"cron": "0 * * * *", "payload": {"a": "<b>"}},
    "sync-02": {"weekly_at": "sun 18:00"},
    "sync-03": {"every_n_minutes": 60},
}


def asked(web: Any, kind: type) -> list[Any]:
    return [one for one in web.cluster.reader.requests if isinstance(one, kind)]


def documents(request: Any) -> dict[str, Any]:
    """Name → spec of the manifests, each of which must expect version 3."""
    assert all(one.expect_version == 3 for one in request.manifests)
    bodies = [json.loads(one.json) for one in request.manifests]
    return {one["metadata"]["name"]: one["spec"] for one in bodies}


@pytest.fixture
def crowd(web: Any) -> Any:
    """A site with a minute in which the schedules of STORED fire."""

    def schedule(name: str) -> pb.Schedule:
        spec = {"name": name, "job": "sync", **STORED.get(name, {})}
        return web.schedule(name=name, spec_json=json.dumps(spec), version=3)

    def schedules(request: Any) -> pb.ListSchedulesResponse:
        return pb.ListSchedulesResponse(schedules=[schedule(name) for name in request.names if name in STORED])

    named = [pb.LoadSchedule(schedule=name, job="sync", slots=1, version=3) for name in STORED]
    minute = pb.CrowdedMinute(at=web.stamp(-60), slots=5, schedules=5, named=named)
    web.cluster.reader.responses |= {
        "GetComingLoad": lambda request: pb.ComingLoad(crowded=[minute]),
        "ListSchedules": schedules,
        "Apply": pb.ApplyResponse(),
    }
    return web


def test_the_map_has_a_row_for_each_hour_and_links_crowded_minutes(web: Any) -> None:
    assert 'href="/load"' in web.page("/schedules")
    text = web.page("/load")
    [(link, label)] = re.findall(
        r'<a href="(/load\?minute=[^"]*)#minute" aria-label="([^"]*)"><rect class="crowded"', text
    )
    assert label.endswith("30 slots") and text.count('<rect class="busy"') == 1 and text.count('<rect class="low"') == 1
    table = re.search(r'<details id="load-table">(.*?)</details>', text, re.DOTALL)
    assert table and table[1].count('<th scope="row"') == 24 and "36</td>" in table[1]
    assert "30 schedules · sync-00, sync-01, sync-02 …" in text and "and 27 more" in text
    assert asked(web, pb.GetComingLoadRequest)[0].crowded == 20
    chosen = web.page(link.replace("&amp;", "&"))
    assert 'id="minute"' in chosen and asked(web, pb.GetComingLoadRequest)[-1].names == 200
    assert "minute" not in [field.name for field, _ in asked(web, pb.GetComingLoadRequest)[-2].ListFields()]


def test_what_is_not_counted_is_said(web: Any) -> None:
    loaded = web.cluster.reader.responses["GetComingLoad"]
    loaded.left_out, loaded.unreadable = 7, 2
    text = web.page("/load")
    assert "7 schedules are not counted: reading them" in text and "2 schedules are not counted: their rule" in text


def test_without_slots_and_with_an_older_coordinator(web: Any) -> None:
    web.cluster.reader.responses["GetComingLoad"] = pb.ComingLoad()
    assert "No schedule fires in the next 24 hours." in web.page("/load")
    web.refuse("GetComingLoad", ErrorCode.UNIMPLEMENTED)
    assert "does not support this" in web.page("/load")
    for minute in ("x", "2026-11-29T99:00"):
        assert web.get(f"/load?minute={minute}").status_code == 200
        assert web.get(f"/load/spread?minute={minute}").status_code == 400


def test_a_schedule_of_the_name_load_keeps_its_page(web: Any) -> None:
    web.cluster.reader.responses["GetSchedule"] = web.schedule(name="load")
    assert "<h1>load</h1>" in web.page("/schedules/load")
    web.refuse("GetSchedule", ErrorCode.SCHEDULE_NOT_FOUND)
    assert web.get("/schedules/load").headers["Location"] == "/load"
    assert web.get("/schedules/other").status_code == 404


def test_a_preview_has_each_new_rule_and_its_slots(crowd: Any) -> None:
    text = crowd.page(SPREAD)
    assert "2 schedules change" in text and "1 schedule is left alone" in text and "1 more schedule fires" in text
    for seen in (
        "daily_at: 18:00",
        "cron: 0 * * * *",
        "cron: 5 * * * *",
        "weekly_at: sun 18:10",
        "every_n_minutes: 60",
        "a period counts from the epoch",
        '<span class="muted">stays</span>',
    ):
        assert seen in text, seen
    [row] = re.findall(r"<tr>\s*<th[^>]*><a [^>]*>sync-01</a>.*?</tr>", text, re.DOTALL)
    slots = re.findall(r'<li class="local">\d{4}-\d\d-\d\d \d\d:(\d\d:\d\d)\+00:00</li>', row)
    assert slots == ["00:00"] * 3 + ["05:00"] * 3
    [dry] = asked(crowd, pb.ApplyRequest)
    assert dry.dry_run and documents(dry) == {
        "sync-01": {"job": "sync", "cron": "5 * * * *", "payload": {"a": "<b>"}},
        "sync-02": {"job": "sync", "weekly_at": "sun 18:10"},
    }
    [read] = asked(crowd, pb.ListSchedulesRequest)
    assert list(read.names) == list(STORED) and read.page.limit == 100, "one read has all of them"


def test_one_that_changed_since_it_was_counted_is_left_alone(crowd: Any) -> None:
    """It may have been moved out of the minute a moment ago."""
    load = crowd.cluster.reader.responses["GetComingLoad"](None)
    load.crowded[0].named[1].version = 2
    crowd.cluster.reader.responses["GetComingLoad"] = load
    text = crowd.page(SPREAD)
    assert "it was changed since the minute was counted" in text and "1 schedule changes" in text
    assert set(documents(asked(crowd, pb.ApplyRequest)[0])) == {"sync-02"}
    assert 'value="sync-00=3 sync-02=3 sync-03=3"' in text


def test_fewer_schedules_over_fewer_minutes(crowd: Any) -> None:
    crowd.page("/load/spread?minute=2026-11-29T18:00&over=4&count=2")
    assert documents(asked(crowd, pb.ApplyRequest)[0]) == {
        "sync-01": {"job": "sync", "cron": "2 * * * *", "payload": {"a": "<b>"}}
    }
    crowd.cluster.reader.requests.clear()
    text = crowd.page("/load/spread?minute=2026-11-29T18:00&over=1&count=99999999")
    assert "Nothing would change." in text and not asked(crowd, pb.ApplyRequest)
    assert 'max="10"' in crowd.page("/load/spread?minute=2026-11-29T18:50")


def test_it_is_applied_once_with_a_reason_on_condition_of_the_versions(crowd: Any) -> None:
    assert 'name="seen" value="sync-00=3 sync-01=3 sync-02=3 sync-03=3"' in crowd.page(SPREAD)
    refused = crowd.post(SPREAD)
    assert refused.status_code == 400 and "Give a reason" in refused.get_data(as_text=True)
    assert [one.dry_run for one in asked(crowd, pb.ApplyRequest)] == [True]
    response = crowd.post(SPREAD, reason="crowded")
    assert response.status_code == 303
    assert response.headers["Location"] == "/load?minute=2026-11-29T18:00&done=spread"
    [written] = asked(crowd, pb.ApplyRequest)
    assert not written.dry_run and written.reason == "crowded" and set(documents(written)) == {"sync-01", "sync-02"}


def test_what_would_change_nothing_is_not_applied(crowd: Any) -> None:
    response = crowd.post(SPREAD, reason="crowded", over="1")
    assert response.status_code == 400 and "no schedule of this minute would change" in response.get_data(as_text=True)
    assert not asked(crowd, pb.ApplyRequest)


@pytest.mark.parametrize("seen", ["sync-00=2 sync-01=3", "gone=3 sync-01=3", "sync-00=x", "sync-00", ""])
def test_a_schedule_that_changed_in_between_stops_all(crowd: Any, seen: str) -> None:
    response = crowd.post(SPREAD, reason="crowded", seen=seen)
    assert response.status_code == 400 and "a schedule was changed since" in response.get_data(as_text=True)
    assert all(one.dry_run for one in asked(crowd, pb.ApplyRequest))


def test_a_change_at_the_moment_of_the_apply_stops_all(crowd: Any) -> None:
    def apply(request: Any) -> Any:
        if request.dry_run:
            return pb.ApplyResponse()
        raise TobanError(ErrorCode.CONFLICT, "schedule 'sync-01' is at version 4")

    crowd.cluster.reader.responses["Apply"] = apply
    response = crowd.post(SPREAD, reason="crowded")
    text = response.get_data(as_text=True)
    assert response.status_code == 409 and "is at version 4" in text and "crowded</textarea>" in text


def test_what_the_coordinators_refuse_is_shown_and_cannot_be_applied(crowd: Any) -> None:
    crowd.refuse("Apply", ErrorCode.PAYLOAD_INVALID, "schedule 'sync-01': payload.a is wrong")
    text = crowd.page(SPREAD)
    assert "payload.a is wrong" in text and '<form class="action"' not in text
    denied = TobanError(ErrorCode.PERMISSION_DENIED, "not this one", detail={"user": "ada"})
    crowd.cluster.reader.responses["Apply"] = denied
    assert crowd.get(SPREAD).status_code == 403


def test_it_is_for_editors(crowd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd.cluster.reader.responses["GetComingLoad"] = load_message()
    assert 'href="/load/spread' in crowd.page("/load")
    people = crowd.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="op", role="operator"))
    assert crowd.get(SPREAD).status_code == 403 and 'href="/load/spread' not in crowd.page("/load")


def test_a_month_leads_to_the_map_of_its_days(web: Any) -> None:
    def schedules(request: Any) -> pb.ListSchedulesResponse:
        begin = int(request.page.cursor or 0)
        spec = {"daily_at": "02:30", "timezone": "Europe/Zurich"}
        found = [
            web.schedule(name=f"s{n:04}", timezone="Europe/Zurich", spec_json=json.dumps(spec))
            for n in range(begin, begin + request.page.limit)
        ]
        return pb.ListSchedulesResponse(schedules=found, next_cursor=str(begin + request.page.limit))

    web.cluster.reader.responses["ListSchedules"] = schedules
    assert 'href="/load/month"' in web.page("/load") and "/load/month?name=s" in web.page("/schedules?name=s")
    # Only days to come have slots.
    march = f"{web.worker.context.clock.wall().year + 1}-03"
    text = web.page(f"/load/month?name=s&month={march}")
    assert "Only the first 1000 schedules by name are counted" in text
    assert {(one.name, one.page.limit) for one in asked(web, pb.ListSchedulesRequest)[-2:]} == {("s", 500)}
    assert len(re.findall(rf'href="/load/days/{march}-\d\d\?name=s"', text)) == 31
    assert text.count("1,000 slots") == 31 and text.count(">clocks change<") == 1
    assert 'title="clocks change: Europe/Zurich"' in text
    text = web.page(f"/load/days/{march}-01?name=s&minute={march}-01T01:30")
    assert f"Load on {march}-01" in text and text.count('<rect class="crowded"') == 1
    assert f'href="/load/days/{march}-01?minute={march}-01T01:30&amp;name=s#minute"' in text
    assert "1000 schedules" in text and "and 800 more" in text and "/load/spread" not in text
    for path in ("/load/days/2027-02-30", "/load/days/9999-12-31", "/load/days/x"):
        assert web.get(path).status_code == 404
