"""Hooks on the site: the events that each makes, its secrets, and a sample message."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2, hooks_pb2
from toban_testing.site_flows import event_message, hook_message

FORM = {"event_type": "", "events": "push=git.push\npull_request", "fields": "ref", "rate": "60", "type_from": ""}


def test_the_list_has_kind_events_and_secrets(web: Any) -> None:
    text = web.page("/incoming")
    assert 'href="/incoming/repo"' in text and 'href="/events?type=git.push"' in text and "github" in text
    assert web.get("/hooks").location == "/incoming"
    web.cluster.reader.responses["ListHooks"] = hooks_pb2.ListHooksResponse()
    text = web.page("/incoming")
    assert "toban hook set repo" in text and 'href="/new/hook"' in text
    assert web.get("/incoming/repo").status_code == 404


def test_no_page_is_below_the_address_that_strangers_reach(web: Any) -> None:
    rules = [rule for rule in web.worker.app.url_map.iter_rules() if rule.rule.startswith("/hooks/")]
    assert [(rule.endpoint, rule.methods - {"OPTIONS"}) for rule in rules] == [("hooks.receive", {"POST"})]


def test_one_hook_has_its_last_events(web: Any) -> None:
    events = [event_message(id=5, created_by="hook repo"), event_message(id=4, created_by="hook shop")]
    web.cluster.reader.responses["ListEvents"] = coordinator_pb2.ListEventsResponse(events=events)
    text = web.page("/incoming/repo")
    assert re.findall(r'id="payload-(\d+)"', text) == ["5"]
    for seen in ("push → git.push", "header:x-github-event", 'data-copy="/hooks/repo"', "Two secrets are valid"):
        assert seen in text
    assert web.asked(coordinator_pb2.ListEventsRequest)[-1].event_type == ""
    mapping = hooks_pb2.HookMapping(event_type="order.paid")
    one = hook_message(secrets=1, enabled=False, mapping=mapping)
    web.cluster.reader.responses["ListHooks"] = hooks_pb2.ListHooksResponse(hooks=[one])
    text = web.page("/incoming/repo")
    assert web.asked(coordinator_pb2.ListEventsRequest)[-1].event_type == "order.paid"
    assert re.findall(r'href="/incoming/repo/([a-z]+)"', text) == ["change", "test", "rotate", "enable", "remove"]


@pytest.mark.parametrize(
    ("verb", "given", "done"),
    [
        ("rotate", {"new_secret": True, "drop_old_secret": False}, ""),
        ("drop", {"new_secret": False, "drop_old_secret": True}, "hook_dropped"),
        ("disable", {"enabled": False}, "hook_disabled"),
        ("enable", {"enabled": True}, "hook_enabled"),
    ],
)
def test_an_action_names_the_hook_and_why(web: Any, verb: str, given: dict[str, Any], done: str) -> None:
    secret = "0f3c" if verb == "rotate" else ""
    web.cluster.reader.responses["SetHook"] = hooks_pb2.SetHookResponse(hook=hook_message(), secret=secret)
    response = web.post(f"/incoming/repo/{verb}", reason="leaked")
    [request] = web.asked(hooks_pb2.SetHookRequest)
    assert (request.name, request.reason) == ("repo", "leaked") and not request.HasField("mapping")
    assert {name: getattr(request, name) for name in given} == given
    assert request.HasField("enabled") is ("enabled" in given)
    if secret:
        assert secret in response.get_data(as_text=True)
        assert response.headers["Cache-Control"] == "no-store" and secret not in web.page("/incoming/repo")
    else:
        assert response.location == f"/incoming/repo?done={done}"


def test_a_hook_is_deleted_with_a_reason(web: Any) -> None:
    assert web.post("/incoming/repo/remove", reason=" ").status_code == 400
    assert web.post("/incoming/repo/remove", reason="moved").location == "/incoming?done=hook_removed"
    [request] = web.asked(hooks_pb2.RemoveHookRequest)
    assert (request.name, request.reason) == ("repo", "moved")


def test_a_hook_is_made_and_changed_by_form(web: Any) -> None:
    web.cluster.reader.responses["SetHook"] = hooks_pb2.SetHookResponse(hook=hook_message(), secret="0f3c")
    assert "0f3c" in web.post("/new/hook", name="shop", kind="github", reason="new", **FORM).get_data(as_text=True)
    [request] = web.asked(hooks_pb2.SetHookRequest)
    assert (request.name, request.kind, request.rate_per_minute, request.reason) == ("shop", "github", 60, "new")
    assert dict(request.mapping.events) == {"push": "git.push", "pull_request": "pull_request"}
    assert list(request.mapping.fields) == ["ref"]
    web.cluster.reader.responses["SetHook"] = hooks_pb2.SetHookResponse(hook=hook_message())
    page = web.page("/incoming/repo/change")
    assert "pull_request\npush=git.push</textarea>" in page and 'name="kind"' not in page
    response = web.post("/incoming/repo/change", reason="one type", **(FORM | {"event_type": "git", "events": ""}))
    assert response.location == "/incoming/repo?done=hook_changed"
    [request] = web.asked(hooks_pb2.SetHookRequest)
    assert (request.kind, request.mapping.event_type, dict(request.mapping.events)) == ("", "git", {})


@pytest.mark.parametrize(
    ("path", "changes", "why"),
    [
        ("/new/hook", {"name": "repo"}, "This name exists already"),
        ("/new/hook", {"name": "shop", "events": "=x"}, "The values cannot be read"),
        ("/new/hook", {"name": "shop", "rate": "many"}, "is not a whole number"),
        ("/incoming/repo/change", {"version": "2"}, "Another person has changed this"),
        ("/incoming/repo/change", {"reason": ""}, "Give a reason"),
    ],
)
def test_a_form_that_cannot_be_used_is_not_sent(web: Any, path: str, changes: dict[str, str], why: str) -> None:
    response = web.post(path, **{"reason": "x", **FORM, **changes})
    assert response.status_code == 400 and why in response.get_data(as_text=True)
    assert not web.asked(hooks_pb2.SetHookRequest)


def test_a_sample_shows_the_event_that_it_would_become(web: Any) -> None:
    text = web.post("/incoming/repo/test", value="push", payload='{"ref": "main"}').get_data(as_text=True)
    assert "It would become an event of type <strong>git.push</strong>" in text
    [request] = web.asked(hooks_pb2.TestHookRequest)
    assert (request.name, request.value, json.loads(request.payload_json)) == ("repo", "push", {"ref": "main"})
    web.cluster.reader.responses["TestHook"] = hooks_pb2.TestHookResponse(result="ignored")
    assert "It would be ignored" in web.post("/incoming/repo/test", value="x").get_data(as_text=True)
    response = web.post("/incoming/repo/test", payload="[1]")
    assert response.status_code == 400 and not web.asked(hooks_pb2.TestHookRequest)
    web.refuse("TestHook", ErrorCode.INVALID_ARGUMENT, "the hook reads no header")
    response = web.post("/incoming/repo/test", value="x")
    assert response.status_code == 400 and "the hook reads no header" in response.get_data(as_text=True)


def test_only_administrators_act(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = SignedIn(user="ed", role="editor")
    monkeypatch.setattr(web.worker.context.gate.people, "person", lambda *_args, **_named: editor)
    assert "/incoming/repo/" not in web.page("/incoming/repo") and "/new/hook" not in web.page("/incoming")
    for path in ("/new/hook", "/incoming/repo/change", "/incoming/repo/test", "/incoming/repo/rotate"):
        assert web.get(path).status_code == 403
