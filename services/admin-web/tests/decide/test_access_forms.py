"""What forms and reasons about rights mean."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.decide.access_forms import deciding_rule, numbers, parse_labels, whole_grants, words
from toban_admin_web.decide.api_models import AccessRule, AccessSelector
from toban_domain.access import Action, Effect, Person, Role, Rule, may


def rule(number: int, **given: Any) -> AccessRule:
    values: dict[str, Any] = {"user": "bob", "group": "", "effect": "allow", "role": "viewer", "selector": None}
    values |= {"created_at": None, "created_by": "user ada"}
    return AccessRule(id=number, **(values | given))


def test_the_reason_of_a_verdict_names_its_rule() -> None:
    decides = Rule(id=12, effect=Effect.ALLOW, role=Role.VIEWER, origin="user bob")
    assert deciding_rule(may(Person(name="bob", rules=(decides,)), Action.VIEW).reason) == 12
    assert deciding_rule(may(Person(name="bob"), Action.VIEW).reason) is None
    assert deciding_rule("the rule 12 of others") is None


def test_a_role_for_everything_is_one_that_a_person_gave() -> None:
    some = AccessSelector(job="", labels={"team": "ops"}, scope="", scope_id="")
    none = AccessSelector(job="", labels={}, scope="", scope_id="")
    others = [
        rule(2, selector=some),
        rule(3, effect="deny"),
        rule(4, created_by="OpenID provider"),
        rule(5, user="ada"),
        rule(6, user="", group="ops"),
    ]
    found = whole_grants("bob", [rule(1), *others, rule(7, selector=none)])
    assert numbers(found) == "1 7"


def test_words_and_labels() -> None:
    assert words(" a, b,,a\tc ") == ["a", "b", "c"]
    assert parse_labels("team=ops, url=a=b") == {"team": "ops", "url": "a=b"} and parse_labels(" ") == {}


@pytest.mark.parametrize("text", ["team", "=ops", "team=", "a=1,a=2"])
def test_labels_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"a=2|team|ops"):
        parse_labels(text)
