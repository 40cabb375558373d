"""Groups and rules on the site, and the question who may do what."""

from __future__ import annotations

from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb

WHY = "new team"


def sent(web: Any, method: str) -> list[Any]:
    """The requests of one method."""
    return [request for name, _, request in web.cluster.accounts.asked if name == method]


def answer(web: Any, **answers: Any) -> None:
    web.cluster.accounts.own.update(answers)


def test_a_group_is_shown_with_members_and_rules(web: Any) -> None:
    text = web.page("/groups")
    assert 'href="/groups/ops"' in text and 'href="/users/bob"' in text and 'class="number">1</td>' in text
    text = web.page("/groups/ops")
    assert 'href="/groups/ops/leave?user=bob"' in text and 'href="/new/rule?kind=group&amp;name=ops"' in text
    assert [one.group for one in sent(web, "ListRules")] == ["", "ops"]
    assert web.get("/groups/nothing").status_code == 404


def test_an_installation_without_groups_and_rules_shows_how_to_begin(web: Any) -> None:
    answer(web, ListGroups=pb.ListGroupsResponse(), ListRules=pb.ListRulesResponse())
    assert 'class="button" href="/new/group"' in web.page("/groups")
    assert 'class="button" href="/new/rule"' in web.page("/rules")


@pytest.mark.parametrize(
    ("path", "fields", "expected", "to"),
    [
        ("/new/group", {"name": " web "}, ("web", "add", ""), "/groups/web?done=group_added"),
        ("/groups/ops/join", {"user": "ada"}, ("ops", "join", "ada"), "/groups/ops?done=member_joined"),
        ("/groups/ops/leave?user=bob", {"user": "bob"}, ("ops", "leave", "bob"), "/groups/ops?done=member_left"),
        ("/groups/ops/delete", {}, ("ops", "delete", ""), "/groups?done=group_deleted"),
    ],
)
def test_a_group_is_changed_with_a_reason(
    web: Any, path: str, fields: dict[str, str], expected: tuple[str, ...], to: str
) -> None:
    assert "Give a reason" in web.post(path, **fields).get_data(as_text=True)
    assert sent(web, "UpdateGroup") == []
    assert web.post(path, **fields, reason=WHY).location == to
    [request] = sent(web, "UpdateGroup")
    assert (request.name, request.change, request.user) == expected and request.reason == WHY
    answer(web, UpdateGroup=TobanError(ErrorCode.RESOURCE_INVALID_STATE, "no administrator would be left"))
    response = web.post(path, **fields, reason=WHY)
    assert response.status_code == 409 and "no administrator would be left" in response.get_data(as_text=True)


def test_a_member_has_a_name(web: Any) -> None:
    response = web.post("/groups/ops/join", user=" ", reason=WHY)
    assert response.status_code == 400 and "Name the person." in response.get_data(as_text=True)


def test_a_rule_is_added(web: Any) -> None:
    page = web.page("/new/rule?kind=group&name=ops")
    assert 'value="group" checked' in page and 'value="ops"' in page
    given = {"kind": "group", "name": "ops", "effect": "deny", "role": "operator", "job": "payroll"}
    given |= {"labels": "team=ops, tier=1", "scope": "account", "scope_id": "17"}
    response = web.post("/new/rule", **given, reason=WHY)
    assert response.location == "/rules?done=rule_added#rule-14"
    [request] = sent(web, "AddRule")
    rule = request.rule
    assert (rule.user, rule.group, rule.effect, rule.role, request.reason) == ("", "ops", "deny", "operator", WHY)
    assert dict(rule.selector.labels) == {"team": "ops", "tier": "1"}
    assert (rule.selector.job, rule.selector.scope, rule.selector.scope_id) == ("payroll", "account", "17")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": ""}, "Name the user or the group"),
        ({"kind": "team"}, "Name the user or the group"),
        ({"role": "king"}, "none of those that can be chosen"),
        ({"effect": "perhaps"}, "none of those that can be chosen"),
        ({"labels": "team"}, "The labels cannot be read"),
        ({"labels": "a=1 a=2"}, "The labels cannot be read"),
        ({"reason": ""}, "Give a reason"),
    ],
)
def test_a_rule_that_cannot_be_read_is_not_sent(web: Any, fields: dict[str, str], why: str) -> None:
    given = {"kind": "user", "name": "bob", "effect": "allow", "role": "viewer", "labels": "a=1", "reason": WHY}
    response = web.post("/new/rule", **(given | fields))
    assert response.status_code == 400 and why in response.get_data(as_text=True)
    assert sent(web, "AddRule") == []


def test_a_refused_rule_stays_in_the_form(web: Any) -> None:
    answer(web, AddRule=TobanError(ErrorCode.NOT_FOUND, "there is no user 'carol'"))
    given = {"kind": "user", "name": "carol", "effect": "deny", "role": "editor", "job": "hello"}
    response = web.post("/new/rule", **given, reason=WHY)
    text = response.get_data(as_text=True)
    assert response.status_code == 404 and "there is no user" in text and 'value="carol"' in text
    assert 'value="deny" checked' in text and 'value="editor" selected' in text and 'value="hello"' in text


def test_a_rule_is_removed(web: Any) -> None:
    text = web.page("/rules/13/remove")
    assert "payroll" in text and "team=ops" in text and 'href="/groups/ops"' in text
    assert web.post("/rules/13/remove", reason=WHY).location == "/rules?done=rule_removed"
    assert [(one.id, one.reason) for one in sent(web, "RemoveRule")] == [(13, WHY)]
    answer(web, RemoveRule=TobanError(ErrorCode.RESOURCE_INVALID_STATE, "your own account"))
    response = web.post("/rules/12/remove", reason=WHY)
    assert response.status_code == 409 and "your own account" in response.get_data(as_text=True)
    assert web.get("/rules/99/remove").status_code == 404


def test_the_question_shows_the_verdict_and_the_rule_that_decides(web: Any) -> None:
    text = web.page("/rules?user=bob&action=run&job=hello&scope=account&scope_id=17")
    [request] = sent(web, "May")
    asked = (request.user, request.action, request.job, request.scope, request.scope_id)
    assert asked == ("bob", "run", "hello", "account", "17")
    assert "Allowed." in text and 'href="#rule-12"' in text and '<tr id="rule-12" class="chosen">' in text
    denied = pb.MayResponse(reason="no rule gives bob operator for this")
    answer(web, May=denied)
    text = web.page("/rules?user=bob&action=run")
    assert "Denied." in text and "no rule gives bob operator" in text and 'class="chosen"' not in text


def test_no_question_is_asked_without_a_person(web: Any) -> None:
    assert "Nothing is changed." in web.page("/rules?user=&action=run")
    assert sent(web, "May") == []


def test_a_question_about_an_unknown_person_or_job_says_so(web: Any) -> None:
    answer(web, May=TobanError(ErrorCode.NOT_FOUND, "there is no user 'carol'"))
    text = web.page("/rules?user=carol&action=run")
    assert "there is no user &#39;carol&#39;" in text and 'role="alert"' in text


def test_rules_are_shown_when_jobs_cannot_be_read(web: Any) -> None:
    web.refuse("ListJobs", ErrorCode.PERMISSION_DENIED)
    assert 'id="rule-12"' in web.page("/rules")
