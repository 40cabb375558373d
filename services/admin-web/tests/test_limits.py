"""Limits: what the pages show, and that each action names the limit, what to do and why."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import limit_message

POOL = "pool:licences"


def sent(web: Any, kind: type) -> list[Any]:
    """The requests of one kind."""
    return [one for one in web.cluster.reader.requests if isinstance(one, kind)]


def test_the_queue_comes_first_with_its_reason(web: Any) -> None:
    limits = [
        limit_message(name="job:late", waiting=1, waiting_since=web.stamp(20), effective=-1, breaker="open"),
        limit_message(name="job:free", waiting=0, held=1, signal="soft", effective=8),
        limit_message(name='key:etl/"a/b"', waiting=3, waiting_since=web.stamp(900)),
    ]
    web.cluster.reader.responses["ListLimits"] = pb.ListLimitsResponse(limits=limits)
    queue, _, everything = web.page("/limits").partition('id="all-title"')
    names = re.findall(r'href="/limits/one\?name=([^"]*)"', queue)
    assert names == ["key:etl/%22a/b%22", "job:late"], "the longest wait is first"
    assert "There is no room: 10 of 10 are in use." in queue and "The breaker is open" in queue
    for seen in ("job:free", "now 8", "soft: 80 %", "1 of 8", "user ada", "ten licences"):
        assert seen in everything


def test_without_limits_the_page_says_how_to_make_one(web: Any) -> None:
    web.cluster.reader.responses["ListLimits"] = pb.ListLimitsResponse()
    text = web.page("/limits")
    assert "toban limit set pool:licences" in text and "No run waits for a limit." in text


def test_a_limit_links_its_runs(web: Any) -> None:
    text = web.page(f"/limits/one?name={POOL}")
    assert 'href="/runs/7"' in text and 'href="/runs/8"' in text and 'href="/jobs/hello"' in text
    [request] = sent(web, pb.GetLimitRequest)
    assert request.name == POOL
    assert re.findall(r'href="/limits/([a-z]+)\?name=pool:licences"', text) == ["set", "reset", "open", "signal"]


@pytest.mark.parametrize(
    ("verb", "fields", "kind", "given", "done"),
    [
        ("set", {"value": "-1"}, pb.SetLimitRequest, {"limit": -1, "reset": False}, "limit_set"),
        ("reset", {}, pb.SetLimitRequest, {"reset": True}, "limit_reset"),
        ("open", {}, pb.SetBreakerRequest, {"open": True}, "breaker_opened"),
        ("close", {}, pb.SetBreakerRequest, {"open": False}, "breaker_closed"),
        ("signal", {"level": "hard", "seconds": "90"}, pb.SignalLimitRequest, {"level": "hard"}, "signaled"),
    ],
)
def test_an_action_names_limit_and_reason(
    web: Any, verb: str, fields: dict[str, str], kind: type, given: dict[str, Any], done: str
) -> None:
    changed = {"limit": limit_message()}
    web.cluster.reader.responses |= {
        "SetLimit": pb.SetLimitResponse(**changed),
        "SetBreaker": pb.SetBreakerResponse(**changed),
        "SignalLimit": pb.SignalLimitResponse(**changed),
    }
    response = web.post(f"/limits/{verb}?name={POOL}", reason="month end", **fields)
    before = "&was=10" if verb in ("set", "reset") else ""
    assert response.location == f"/limits/one?name={POOL}&done={done}{before}"
    [request] = sent(web, kind)
    assert (request.name, request.reason) == (POOL, "month end")
    assert {name: getattr(request, name) for name in given} == given
    assert 'class="message good" role="status"' in web.page(response.location)


def test_a_pool_that_was_reset_has_no_page(web: Any) -> None:
    web.cluster.reader.responses["SetLimit"] = pb.SetLimitResponse(limit=pb.Limit(name=POOL))
    to = f"/limits?done=limit_reset&of={POOL}&was=10"
    assert web.post(f"/limits/reset?name={POOL}", reason="x").location == to


def test_a_limit_that_was_set_gets_its_value_back(web: Any) -> None:
    """Or none, where no operator had set one."""
    for was, verb, value in (("&was=7", "set", "7"), ("", "reset", "")):
        page = web.page(f"/limits/one?name={POOL}&done=limit_set{was}")
        [link] = re.findall(r'<a class="button" href="([^"]+)">Undo…</a>', page)
        form = web.page(link.replace("&amp;", "&"))
        assert f'action="/limits/{verb}?name={POOL}"' in form and "Undo: " in form
        assert value in ("", *re.findall(r'required value="([^"]*)"', form))
    web.cluster.reader.responses["GetLimit"] = pb.GetLimitResponse(limit=limit_message(source="definition"))
    web.cluster.reader.responses["SetLimit"] = pb.SetLimitResponse(limit=limit_message())
    to = web.post(f"/limits/set?name={POOL}", value="3", reason="x").location
    assert to == f"/limits/one?name={POOL}&done=limit_set"


def test_a_limit_that_is_not_there_can_be_set_and_nothing_else(web: Any) -> None:
    web.refuse("GetLimit", ErrorCode.NOT_FOUND, "there is no limit 'pool:new'")
    assert 'name="value"' in web.page("/limits/set?name=pool:new")
    assert web.get("/limits/open?name=pool:new").status_code == 404
    assert web.get("/limits/one?name=pool:new").status_code == 404


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"value": "7.5", "reason": "x"}, "is not a whole number"),
        ({"value": "1_0", "reason": "x"}, "is not a whole number"),
        ({"value": "9", "reason": " "}, "Give a reason"),
    ],
)
def test_a_form_that_cannot_be_read_is_not_sent(web: Any, fields: dict[str, str], why: str) -> None:
    response = web.post(f"/limits/set?name={POOL}", **fields)
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and why in text and f'value="{fields["value"]}"' in text
    assert sent(web, pb.SetLimitRequest) == []


def test_a_refusal_of_the_coordinator_is_shown_with_the_form(web: Any) -> None:
    web.refuse("SetLimit", ErrorCode.RESOURCE_INVALID_STATE, "job etl takes 4 of the pool")
    response = web.post(f"/limits/set?name={POOL}", value="3", reason="smaller")
    text = response.get_data(as_text=True)
    assert response.status_code == 409 and "job etl takes 4 of the pool" in text
    assert 'value="3"' in text and "smaller</textarea>" in text


@pytest.mark.parametrize("verb", ["one", "set", "open"])
def test_a_request_without_a_name_is_none(web: Any, verb: str) -> None:
    assert web.get(f"/limits/{verb}").status_code == 400


def test_an_operator_may_signal_and_an_editor_sets_nothing(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = web.worker.context.gate.people
    for role, offered in (("editor", ["signal"]), ("operator", ["signal"]), ("viewer", [])):
        person = SignedIn(user="ed", role=role)
        monkeypatch.setattr(people, "person", lambda *_args, _person=person, **_named: _person)
        text = web.page(f"/limits/one?name={POOL}")
        assert re.findall(r'href="/limits/([a-z]+)\?name=pool:licences"', text) == offered
        for verb in ("set", "reset", "open", "close", "signal"):
            status = 200 if verb in offered else 403
            assert web.get(f"/limits/{verb}?name={POOL}").status_code == status
        assert 'id="limit-name"' not in web.page("/limits")
