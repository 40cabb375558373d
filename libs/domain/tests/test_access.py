"""Who may do what: a table of cases, and properties that hold for any rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.access import (
    MINIMUM,
    OF_CLUSTER,
    WORKER,
    Action,
    Effect,
    Person,
    Role,
    Rule,
    Selector,
    Target,
    access_mark,
    as_worker,
    can_administer,
    check_change,
    highest_role,
    is_narrowed,
    is_restricted,
    may,
    may_by_some_labels,
    may_every,
    may_somewhere,
    worker_type_of,
)
from toban_domain.errors import ErrorCode, TobanError

OPS = Selector(labels={"team": "ops"})
BACKUP = Target(job="backup", labels={"team": "ops", "tier": "1"}, scope="account", scope_id="17")
MAIL = Target(job="mail", labels={"team": "web"})


def rule(number: int, effect: str, role: str, selector: Selector | None = None) -> Rule:
    return Rule(id=number, effect=Effect(effect), role=Role(role), selector=selector or Selector(), origin="user bob")


SELECTORS = st.builds(
    Selector,
    job=st.sampled_from(["", "backup", "mail"]),
    labels=st.sampled_from([{}, {"team": "ops"}, {"team": "web"}]),
    scope=st.sampled_from(["", "system", "account"]),
    scope_id=st.sampled_from(["", "17"]),
)
RULES = st.builds(
    Rule,
    id=st.integers(1, 99),
    effect=st.sampled_from(Effect),
    role=st.sampled_from(Role),
    selector=SELECTORS,
    origin=st.just("user bob"),
)
PEOPLE = st.builds(Person, name=st.just("bob"), rules=st.lists(RULES, max_size=5).map(tuple))
ACTIONS = st.sampled_from(Action)
TARGETS = st.sampled_from([BACKUP, MAIL, None])


# Reviewed by hand, not derived from the rules: role → allowed actions on a job or on the cluster.
EXPECTED = {
    "viewer": {"view"},
    "operator": {"view", "run", "cancel"},
    "editor": {"view", "run", "cancel", "edit"},
    "admin": {"view", "run", "cancel", "edit", "operate", "accounts"},
}


@pytest.mark.parametrize("role", Role)
def test_each_role(role: Role) -> None:
    bob = Person(name="bob", rules=(rule(1, "allow", role),))
    assert {action.value for action in Action if may(bob, action, MAIL).allowed} == EXPECTED[role]


@given(PEOPLE, ACTIONS.filter(lambda one: one not in OF_CLUSTER))
def test_what_some_labels_would_allow(bob: Person, action: Action) -> None:
    labels = [{}, {"team": "ops"}, {"team": "web"}, {"team": "ops", "tier": "1"}]
    allowed = any(may(bob, action, replace(BACKUP, labels=one)).allowed for one in labels)
    found = may_by_some_labels(bob, action, replace(BACKUP, labels={}))
    # Two rules of which each names labels are not looked at together, so it may allow more, and never less.
    assert found or not allowed
    several = sum(bool(one.selector.labels) for one in bob.rules) > 1
    assert several or found == allowed


def test_a_rule_is_for_its_jobs_only() -> None:
    bob = Person(name="bob", rules=(rule(1, "allow", "admin", OPS),))
    assert may(bob, Action.EDIT, BACKUP).allowed and not may(bob, Action.EDIT, MAIL).allowed
    assert not may(bob, Action.OPERATE, BACKUP).allowed, "the cluster is nobody's label"
    scoped = Person(name="bob", rules=(rule(1, "allow", "operator", Selector(scope="account", scope_id="17")),))
    assert may(scoped, Action.RUN, BACKUP).allowed
    assert not may(scoped, Action.RUN, replace(BACKUP, scope_id="18")).allowed


def test_the_reason_names_what_decided() -> None:
    bob = Person(name="bob", rules=(rule(3, "allow", "operator"), rule(7, "deny", "operator", OPS)))
    assert may(bob, Action.RUN, BACKUP).reason == "rule 7 of user bob: deny operator for label team=ops"
    assert may(bob, Action.RUN, MAIL).reason == "rule 3 of user bob: allow operator for everything"
    assert may(bob, Action.EDIT, MAIL).reason == "no rule gives bob editor for this"
    assert may(replace(bob, enabled=False), Action.VIEW, MAIL).reason == "the account bob is disabled"


def test_denying_a_role_denies_those_above_it_and_not_those_below() -> None:
    bob = Person(name="bob", rules=(rule(1, "allow", "admin"), rule(2, "deny", "editor", OPS)))
    assert may(bob, Action.RUN, BACKUP).allowed and not may(bob, Action.EDIT, BACKUP).allowed


@given(PEOPLE, ACTIONS, st.sampled_from([BACKUP, MAIL]), st.booleans(), st.booleans())
def test_who_may_do_it_with_every_job_of_a_part_may_with_each(
    bob: Person, action: Action, target: Target, named: bool, labelled: bool
) -> None:
    part = Target(job=target.job if named else "", labels=target.labels if labelled else {})
    if may_every(bob, action, part).allowed:
        assert may(bob, action, target).allowed


@given(PEOPLE, ACTIONS, st.lists(TARGETS, min_size=2, max_size=4))
def test_the_decision_of_who_is_not_restricted_is_one_for_all_targets(
    bob: Person, action: Action, targets: list[Target | None]
) -> None:
    if not is_restricted(bob, action):
        assert len({may(bob, action, target).allowed for target in targets}) == 1


def test_more_rights_for_some_jobs_restrict_no_one() -> None:
    everything = Rule(id=1, effect=Effect.ALLOW, role=Role.VIEWER, origin="user bob")
    some = Rule(
        id=2, effect=Effect.ALLOW, role=Role.OPERATOR, selector=Selector(labels={"team": "data"}), origin="user bob"
    )
    bob = Person(name="bob", rules=(everything, some))
    assert not is_restricted(bob, Action.VIEW) and is_restricted(bob, Action.RUN)
    assert is_restricted(replace(bob, rules=(some,)), Action.VIEW)
    denied = replace(some, effect=Effect.DENY, role=Role.VIEWER)
    assert is_restricted(replace(bob, rules=(everything, denied)), Action.VIEW)
    assert is_restricted(replace(bob, rules=(everything,), ceiling=some), Action.VIEW)


def test_a_rule_or_a_token_for_one_scope_allows_nothing_for_all_jobs_of_a_part() -> None:
    scoped = rule(1, "allow", "editor", Selector(scope="system"))
    assert not may_every(Person(name="bob", rules=(scoped,)), Action.EDIT, Target(job="mail")).allowed
    bob = Person(name="bob", rules=(rule(1, "allow", "editor"),), ceiling=scoped)
    assert not may_every(bob, Action.EDIT, Target(job="mail")).allowed


def test_what_denies_one_job_of_a_part_is_the_reason() -> None:
    bob = Person(name="bob", rules=(rule(1, "allow", "editor"), rule(2, "deny", "viewer", OPS)))
    for part, allowed in ((Target(), False), (Target(job="mail"), False), (Target(labels={"team": "web"}), True)):
        verdict = may_every(bob, Action.EDIT, part)
        assert verdict.allowed is allowed and verdict.rule == bob.rules[0 if allowed else 1]


@given(PEOPLE, RULES, ACTIONS, TARGETS)
def test_more_denying_never_allows_and_more_allowing_never_denies(
    bob: Person, added: Rule, action: Action, target: Target | None
) -> None:
    before = may(bob, action, target).allowed
    after = may(replace(bob, rules=(*bob.rules, added)), action, target).allowed
    assert before >= after if added.effect is Effect.DENY else before <= after


@given(PEOPLE, ACTIONS, TARGETS, st.randoms())
def test_the_order_of_rules_is_nothing(bob: Person, action: Action, target: Target | None, draw: object) -> None:
    shuffled = list(bob.rules)
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    assert may(replace(bob, rules=tuple(shuffled)), action, target).allowed == may(bob, action, target).allowed


@given(PEOPLE, ACTIONS, TARGETS)
def test_nothing_is_allowed_without_a_rule_or_while_disabled(
    bob: Person, action: Action, target: Target | None
) -> None:
    assert not may(replace(bob, rules=()), action, target).allowed
    assert not may(replace(bob, enabled=False), action, target).allowed


@given(PEOPLE, TARGETS)
def test_without_denials_a_higher_role_may_all_that_a_lower_one_may(bob: Person, target: Target | None) -> None:
    bob = replace(bob, rules=tuple(one for one in bob.rules if one.effect is Effect.ALLOW))
    allowed = {
        MINIMUM[action].rank for action in Action if action not in OF_CLUSTER and may(bob, action, target).allowed
    }
    assert all(rank in allowed for rank in range(max(allowed, default=-1) + 1))


@given(PEOPLE, RULES, ACTIONS, TARGETS)
def test_a_token_may_never_more_than_its_person(
    bob: Person, ceiling: Rule, action: Action, target: Target | None
) -> None:
    ceiling = replace(ceiling, effect=Effect.ALLOW)
    token = may(replace(bob, ceiling=ceiling), action, target).allowed
    assert token == (
        may(bob, action, target).allowed and ceiling.covers(action, None if action in OF_CLUSTER else target)
    )


@given(st.lists(PEOPLE, max_size=4), st.lists(PEOPLE, max_size=4))
def test_a_change_that_is_let_through_leaves_an_administrator(before: list[Person], after: list[Person]) -> None:
    before = [replace(person, name=f"user-{number}") for number, person in enumerate(before)]
    after = [replace(person, name=f"user-{number}") for number, person in enumerate(after)]
    try:
        check_change(before, after, actor="user-0")
    except TobanError as error:
        assert error.code is ErrorCode.RESOURCE_INVALID_STATE
        assert any(can_administer(person) for person in before)
    else:
        assert any(map(can_administer, after)) or not any(map(can_administer, before))
        assert not (before and can_administer(before[0])) or (after and can_administer(after[0]))


@given(PEOPLE, RULES, ACTIONS, TARGETS)
def test_a_token_that_is_not_narrowed_may_what_its_person_may(
    bob: Person, most: Rule, action: Action, target: Target | None
) -> None:
    token = replace(bob, ceiling=replace(most, effect=Effect.ALLOW))
    if not is_narrowed(token):
        assert may(token, action, target).allowed == may(bob, action, target).allowed


def test_the_highest_role_and_what_narrows_a_token() -> None:
    bob = Person(
        name="bob", rules=(rule(1, "allow", "viewer"), rule(2, "allow", "editor", OPS), rule(3, "deny", "admin"))
    )
    assert highest_role(bob) is Role.EDITOR and highest_role(Person(name="new")) is None
    assert not is_narrowed(bob) and not is_narrowed(replace(bob, ceiling=rule(9, "allow", "editor")))
    for narrow in (rule(9, "allow", "operator"), rule(9, "allow", "admin", OPS)):
        assert is_narrowed(replace(bob, ceiling=narrow))
    assert highest_role(replace(bob, ceiling=rule(9, "allow", "operator"))) is Role.OPERATOR
    assert not is_narrowed(Person(name="new", ceiling=rule(9, "allow", "viewer")))


TRANSCODE = rule(9, "allow", "operator", Selector(scope=WORKER, scope_id="transcode"))


@given(PEOPLE, ACTIONS, TARGETS)
def test_a_token_of_an_external_worker_allows_no_action(bob: Person, action: Action, target: Target | None) -> None:
    token = replace(bob, ceiling=TRANSCODE)
    assert worker_type_of(token) == "transcode" and is_narrowed(token)
    assert not may(token, action, target).allowed and not may_somewhere(token, action).allowed


def test_external_work_is_bounded_by_the_account_and_by_the_role_of_the_token() -> None:
    bob = Person(name="bob", rules=(rule(1, "allow", "admin"),), ceiling=TRANSCODE)
    assert may(as_worker(bob), Action.RUN).allowed and not may(as_worker(bob), Action.EDIT).allowed
    assert "worker_type 'transcode' only" in may(bob, Action.RUN).reason
    viewer = replace(bob, rules=(rule(1, "allow", "viewer"),))
    assert may(as_worker(viewer), Action.RUN).reason == "no rule gives bob operator for this"
    narrow = replace(bob, ceiling=rule(9, "allow", "operator", OPS))
    assert as_worker(narrow) is narrow and worker_type_of(narrow) == "" == worker_type_of(replace(bob, ceiling=None))


def test_the_mark_is_equal_for_equal_rights() -> None:
    ada = Person(name="ada", rules=(rule(1, "allow", "viewer"), rule(2, "deny", "operator", OPS)))
    bob = Person(name="bob", rules=(rule(7, "deny", "operator", OPS), rule(9, "allow", "viewer")))
    assert access_mark(ada) == access_mark(bob), "whose rules they are, and their order, is no right"
    others = (
        (rule(1, "allow", "viewer"),),
        (rule(1, "allow", "viewer"), rule(2, "deny", "editor", OPS)),
        (rule(1, "allow", "viewer"), rule(2, "allow", "operator", OPS)),
        (rule(1, "allow", "viewer"), rule(2, "deny", "operator", Selector(job="x"))),
    )
    marks = {access_mark(ada), *(access_mark(Person(name="bob", rules=one)) for one in others)}
    assert len(marks) == 5
    assert access_mark(Person(name="ada", rules=ada.rules, ceiling=rule(0, "allow", "viewer"))) not in marks
