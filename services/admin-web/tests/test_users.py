"""Accounts on the site: who sees them, what each form sends, and what a refusal shows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import denial_message, rule_message, user_message

EVIL = "<script>alert('x')</script>\"'"
PASSWORD = "correct horse battery"
WHY = "joins the team"


def sent(web: Any, method: str) -> list[Any]:
    """The requests of one method."""
    return [request for name, _, request in web.cluster.accounts.asked if name == method]


def answer(web: Any, **answers: Any) -> None:
    web.cluster.accounts.own.update(answers)


def test_accounts_are_listed_with_role_state_groups_and_sign_in(web: Any) -> None:
    token_only = user_message(name="ci", role="", enabled=False, has_password=False, identities=[], groups=[])
    answer(web, ListUsers=pb.ListUsersResponse(users=[user_message(), token_only], next_cursor="ci"))
    text = web.page("/users?cursor=a")
    for seen in ("Bob of operations", "operator", 'href="/groups/ops"', "password, OpenID provider", "no role"):
        assert seen in text
    assert "API tokens only" in text and ">disabled</span>" in text and 'href="/users?cursor=ci"' in text
    assert [one.page.cursor for one in sent(web, "ListUsers")] == ["a"]


def test_an_account_has_its_own_rules_and_those_of_its_groups(web: Any) -> None:
    other = rule_message(id=99, user="ada")
    answer(web, ListRules=pb.ListRulesResponse(rules=[rule_message(), denial_message(), other]))
    text = web.page("/users/bob")
    assert 'id="rule-12"' in text and 'id="rule-13"' in text and 'id="rule-99"' not in text
    for seen in ("8f3c2a at https://id.example.com", "team=ops", "account:17", "/users/bob/disable"):
        assert seen in text
    assert "/users/bob/enable" not in text


def test_an_account_of_a_later_page_is_found(web: Any) -> None:
    def pages(request: Any) -> Any:
        first = pb.ListUsersResponse(users=[user_message(name="a")], next_cursor="a")
        return pb.ListUsersResponse(users=[user_message()]) if request.page.cursor else first

    answer(web, ListUsers=pages)
    assert "<h1>bob</h1>" in web.page("/users/bob")
    assert web.get("/users/carol").status_code == 404


@pytest.mark.parametrize("role", ["", "operator"])
def test_an_account_is_added_with_or_without_a_role(web: Any, role: str) -> None:
    given = {"name": "carol", "display_name": "Carol", "password": PASSWORD, "again": PASSWORD, "role": role}
    response = web.post("/new/user", **given, reason=WHY)
    assert response.location == "/users/carol?done=user_added"
    [request] = sent(web, "AddUser")
    assert (request.name, request.display_name, request.password, request.reason) == ("carol", "Carol", PASSWORD, WHY)
    rules = [(one.rule.user, one.rule.effect, one.rule.role, one.reason) for one in sent(web, "AddRule")]
    assert rules == ([("carol", "allow", role, WHY)] if role else [])


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"reason": ""}, "Give a reason"),
        ({"again": "another one"}, "The two passwords differ."),
        ({"role": "king"}, "none of those that can be chosen"),
    ],
)
def test_a_form_of_an_account_that_cannot_be_read_is_not_sent(web: Any, fields: dict[str, str], why: str) -> None:
    given = {"name": "carol", "password": PASSWORD, "again": PASSWORD, "reason": WHY}
    response = web.post("/new/user", **(given | fields))
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and why in text and 'value="carol"' in text and PASSWORD not in text
    assert sent(web, "AddUser") == []


def test_a_refused_account_is_shown_as_it_was_filled_in_without_its_password(web: Any) -> None:
    answer(web, AddUser=TobanError(ErrorCode.ALREADY_EXISTS, "there is a user 'carol' already"))
    response = web.post("/new/user", name="carol", password=PASSWORD, again=PASSWORD, reason=WHY)
    text = response.get_data(as_text=True)
    assert response.status_code == 409 and "there is a user &#39;carol&#39; already" in text
    assert 'value="carol"' in text and f"{WHY}</textarea>" in text and PASSWORD not in text


@pytest.mark.parametrize(
    ("verb", "fields", "method", "expected"),
    [
        ("disable", {}, "UpdateUser", {"name": "bob", "enabled": False}),
        ("enable", {}, "UpdateUser", {"name": "bob", "enabled": True}),
        ("password", {"password": PASSWORD, "again": PASSWORD}, "UpdateUser", {"name": "bob", "password": PASSWORD}),
        ("end-sessions", {}, "EndSessions", {"user": "bob"}),
        ("link", {"subject": " 8f "}, "LinkUser", {"name": "bob", "subject": "8f", "issuer": ""}),
        ("unlink", {"issuer": "https://id.example.com"}, "UnlinkUser", {"issuer": "https://id.example.com"}),
        ("join", {"group": "ops"}, "UpdateGroup", {"name": "ops", "change": "join", "user": "bob"}),
        ("delete", {}, "DeleteUser", {"name": "bob"}),
    ],
)
def test_an_action_sends_its_fields_and_a_reason(
    web: Any, verb: str, fields: dict[str, str], method: str, expected: dict[str, Any]
) -> None:
    path = f"/users/bob/{verb}"
    assert web.post(path, **fields).status_code == 400, "without a reason"
    assert sent(web, method) == []
    response = web.post(path, **fields, reason=WHY)
    assert response.status_code == 303 and re.match(r"/users(/bob)?\?done=", response.location)
    [request] = sent(web, method)
    assert {name: getattr(request, name) for name in expected} == expected and request.reason == WHY
    if method == "UpdateUser":
        assert request.HasField("enabled") == ("enabled" in expected)
    assert 'class="message good" role="status"' in web.page(response.location.replace("/users/bob?", "/users?"))
    answer(web, **{method: TobanError(ErrorCode.RESOURCE_INVALID_STATE, "the last administrator")})
    response = web.post(path, **fields, reason=WHY)
    assert response.status_code == 409 and "the last administrator" in response.get_data(as_text=True)


def test_a_group_to_join_is_one_of_the_others(web: Any) -> None:
    groups = [pb.Group(name="ops", members=["bob"]), pb.Group(name="web")]
    answer(web, ListGroups=pb.ListGroupsResponse(groups=groups))
    text = web.page("/users/bob/join")
    assert '<option value="web"' in text and '<option value="ops"' not in text
    assert "Choose a group." in web.post("/users/bob/join", reason=WHY).get_data(as_text=True)


def test_another_role_takes_the_place_of_the_rules_that_were_shown(web: Any) -> None:
    kept = [
        denial_message(),
        rule_message(id=20, created_by="OpenID provider"),
        rule_message(id=21, selector=pb.AccessSelector(job="hello")),
    ]
    answer(web, ListRules=pb.ListRulesResponse(rules=[rule_message(), rule_message(id=15, role="viewer"), *kept]))
    response = web.post("/users/bob/role", role="editor", reason=WHY)
    assert response.location == "/users/bob?done=role_changed"
    [made] = sent(web, "AddRule")
    assert (made.rule.user, made.rule.effect, made.rule.role, made.reason) == ("bob", "allow", "editor", WHY)
    assert [(one.id, one.reason) for one in sent(web, "RemoveRule")] == [(12, WHY), (15, WHY)]


def test_a_role_that_the_account_has_already_is_kept(web: Any) -> None:
    assert web.post("/users/bob/role", role="operator", reason=WHY).status_code == 303
    assert sent(web, "AddRule") == [] and sent(web, "RemoveRule") == []
    assert web.post("/users/bob/role", role="", reason=WHY).status_code == 303
    assert sent(web, "AddRule") == [] and [one.id for one in sent(web, "RemoveRule")] == [12]


def test_a_role_is_not_changed_when_others_changed_it_since(web: Any) -> None:
    response = web.post("/users/bob/role", role="editor", reason=WHY, rules="11")
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and "other rules give this role" in text and 'name="rules" value="12"' in text
    assert sent(web, "AddRule") == []
    text = web.post("/users/bob/role", role="editor", reason="", rules="11").get_data(as_text=True)
    assert 'name="rules" value="11"' in text, "sent again, it is refused for the newer change"


def test_the_new_rule_goes_again_when_the_old_one_must_stay(web: Any) -> None:
    def remove(request: Any) -> Any:
        if request.id == 12:
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, "this would leave no administrator")
        return pb.AccountsChange()

    answer(web, RemoveRule=remove)
    response = web.post("/users/bob/role", role="viewer", reason=WHY)
    assert response.status_code == 409 and "leave no administrator" in response.get_data(as_text=True)
    assert [one.id for one in sent(web, "RemoveRule")] == [12, 14]


PATHS = ("/users", "/users/bob", "/users/bob/role", "/users/bob/disable", "/new/user", "/groups", "/groups/ops")
FURTHER = ("/groups/ops/join", "/new/group", "/rules", "/rules/12/remove", "/new/rule")


def test_only_administrators_read_and_change_accounts(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = web.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="ed", role="editor"))
    for path in PATHS + FURTHER:
        assert web.get(path).status_code == 403, path
    assert web.cluster.accounts.asked == []
    side = web.page("/settings")
    assert 'href="/secrets"' in side and 'href="/users"' not in side and 'href="/rules"' not in side


def test_names_from_outside_do_not_become_markup(web: Any) -> None:
    identity = pb.UserIdentity(issuer=EVIL, subject=EVIL)
    user = user_message(role=EVIL, display_name=EVIL, groups=[EVIL], created_by=EVIL, identities=[identity])
    selector = pb.AccessSelector(job=EVIL, labels={EVIL: EVIL}, scope=EVIL, scope_id=EVIL)
    rule = rule_message(effect=EVIL, role=EVIL, selector=selector, created_by=EVIL)
    answer(
        web,
        ListUsers=pb.ListUsersResponse(users=[user, user_message(name=EVIL)]),
        ListGroups=pb.ListGroupsResponse(groups=[pb.Group(name="ops", members=[EVIL]), pb.Group(name=EVIL)]),
        ListRules=pb.ListRulesResponse(rules=[rule, denial_message(group=EVIL)]),
        May=pb.MayResponse(reason=EVIL),
    )
    question = "/rules?user=bob&action=run&job=" + EVIL
    for path in (*PATHS, *FURTHER, "/users/bob/unlink", "/users/bob/join", "/groups/ops/leave", question):
        assert "<script>alert" not in web.page(path), path
    for path in ("/users", "/users/bob", "/users/bob/unlink", "/groups", "/groups/ops", "/rules", "/new/rule"):
        assert "&lt;script&gt;" in web.page(path), path
