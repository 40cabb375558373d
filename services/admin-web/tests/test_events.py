"""Events and triggers: what the pages show, and a test event that says what it started."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_flows import event_message, trigger_message

ENDS = {"job": "", "labels": {"team": "data"}, "states": ["FAILED"]}


def test_an_event_is_shown_with_payload_outcome_and_runs(web: Any) -> None:
    events = [
        event_message(),
        event_message(id=30, outcome="", run_ids=[], dedupe_key="cli-" + "12345678-1234-1234-1234-123456789abc"),
        event_message(
            id=29, outcome="failed", message="no such key", run_ids=range(1, 13), dedupe_key="site-" + "a" * 24
        ),
    ]
    web.cluster.reader.responses["ListEvents"] = pb.ListEventsResponse(events=events, next_cursor="29")
    text = web.page("/events")
    for seen in ("order.paid", "started runs", "waiting", "no such key", "hook shop", "and 2 more", "order-7"):
        assert seen in text
    assert 'href="/runs/7"' in text and "cli-1234" not in text and "site-aaaa" not in text
    assert "data-refresh" in text and "data-refresh" not in web.page("/events?cursor=29")


def test_events_are_filtered_and_read_in_pages(web: Any) -> None:
    text = web.page("/events?type=order.paid&waiting=1&cursor=40")
    request = web.asked(pb.ListEventsRequest)[-1]
    assert (request.event_type, request.unprocessed, request.page.cursor) == ("order.paid", True, "40")
    assert "/events?type=order.paid&amp;waiting=1&amp;cursor=30" in text
    web.cluster.reader.responses["ListEvents"] = pb.ListEventsResponse()
    assert "No event matches." in web.page("/events?type=x")
    assert "toban event emit" in web.page("/events") and 'href="/events/emit"' in web.page("/events")


def test_a_test_event_leads_to_what_it_starts(web: Any) -> None:
    response = web.post("/events/emit", type="order.paid", payload='{"n": 1}', dedupe="order-7")
    assert response.location == "/events?type=order.paid&emitted=31&done=event_emitted"
    [request] = web.asked(pb.EmitEventRequest)
    assert (request.event_type, json.loads(request.payload_json)) == ("order.paid", {"n": 1})
    assert request.dedupe_key == "order-7"
    text = web.page(response.location)
    assert 'class="chosen"' in text and 'class="message good" role="status"' in text
    web.cluster.reader.responses["EmitEvent"] = pb.EmitEventResponse(event_id=9, duplicate=True)
    assert web.post("/events/emit", type="order.paid", dedupe="order-7").location.endswith("done=event_duplicate")


def test_a_form_that_is_sent_twice_emits_one_event(web: Any) -> None:
    web.post("/events/emit", type="order.paid", key="site-" + "b" * 24)
    web.post("/events/emit", type="order.paid", key="site-" + "b" * 24)
    [request] = web.asked(pb.EmitEventRequest)
    assert request.dedupe_key == "site-" + "b" * 24 and json.loads(request.payload_json) == {}


@pytest.mark.parametrize("payload", ["[1]", "{", "NaN", '{"a": NaN}', "[" * 20_000, '{"a": "' + "x" * 40_000 + '"}'])
def test_a_payload_that_is_no_object_is_not_sent(web: Any, payload: str) -> None:
    response = web.post("/events/emit", type="order.paid", payload=payload)
    assert response.status_code == 400 and 'id="payload-problem"' in response.get_data(as_text=True)
    assert not web.asked(pb.EmitEventRequest)


def test_a_refusal_is_shown_with_the_form(web: Any) -> None:
    web.refuse("EmitEvent", ErrorCode.INVALID_ARGUMENT, "the type has a space")
    response = web.post("/events/emit", type="a b", payload='{"n": 1}')
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and "the type has a space" in text and 'value="a b"' in text
    assert "{&#34;n&#34;: 1}</textarea>" in text


def test_only_who_may_run_emits(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = web.worker.context.gate.people
    for role, may in (("viewer", False), ("operator", True)):
        person = SignedIn(user="ed", role=role)
        monkeypatch.setattr(people, "person", lambda *_args, _person=person, **_named: _person)
        assert ("/events/emit" in web.page("/events")) is may
        assert web.get("/events/emit").status_code == (200 if may else 403)


def test_a_trigger_says_what_it_waits_for_and_what_it_started(web: Any) -> None:
    web.cluster.reader.responses |= {
        "ListTriggers": pb.ListTriggersResponse(
            triggers=[
                trigger_message(),
                trigger_message(name="after", event_type="@run-end", spec_json=json.dumps({"on_run_end": ENDS})),
                trigger_message(name="odd", event_type="x", spec_json='{"on_run_end": 1}', last_error="no field"),
            ]
        ),
        "ListRuns": pb.ListRunsResponse(
            runs=[web.run(9, trigger="invoice-when-paid"), web.run(8, trigger="invoice-when-paid"), web.run(6)]
        ),
    }
    text = web.page("/triggers?type=order.paid")
    assert re.findall(r'href="/runs/(\d+)"', text) == ["9"], "the newest one"
    for seen in ("end of a run of", "team=data", "no field", 'href="/events?type=order.paid"'):
        assert seen in text
    assert web.asked(pb.ListTriggersRequest)[-1].event_type == "order.paid"
    assert web.asked(pb.ListRunsRequest)[-1].origin == "event"
    web.cluster.reader.responses["ListTriggers"] = pb.ListTriggersResponse(triggers=[trigger_message()])
    text = web.page("/triggers/invoice-when-paid")
    assert 'href="/runs/8"' in text and 'href="/runs/6"' not in text and "/events/emit?type=order.paid" in text


def test_without_triggers_the_page_shows_how_to_write_one(web: Any) -> None:
    web.cluster.reader.responses["ListTriggers"] = pb.ListTriggersResponse()
    text = web.page("/triggers")
    assert "kind: EventTrigger" in text and "{{ event.payload.order.id }}" in text
    assert "No trigger waits" in web.page("/triggers?type=x") and not web.asked(pb.ListRunsRequest)
    web.refuse("ListTriggers", ErrorCode.TRIGGER_NOT_FOUND, "there is no trigger x")
    assert web.get("/triggers/x").status_code == 404
