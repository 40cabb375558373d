"""Which method of the coordinators each route of the API is, and so which action: the rule of the method names its routes (proto/).

The action decides early who is refused; the coordinators decide again, with the person's rules (toban_transport.person_rules).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from toban_domain.access import MINIMUM, Action, Person, Role, Rule, Target, may, may_by_some_labels
from toban_domain.errors import ErrorCode, TobanError
from toban_transport.person_rules import PERSON_RULES
from toban_transport.rules import PACKAGE, RULES, About, Route

PREFIX = "/api/v1"
_PARAMETER = re.compile(r"{(\w+)}")
AUTHENTICATE = "Accounts.Authenticate"
"""Asks whose credential it is, so no person is needed for it."""
DOCS = "/api/docs"
"""A page for browsers, and so none of the routes."""


class Open(StrEnum):
    """Routes that no action guards."""

    SIGNED_IN = "signed-in"
    """For everybody with a good credential."""
    PUBLIC = "public"
    """For everybody: nothing of the installation is in the answer."""


@dataclass(frozen=True, slots=True)
class RouteRule:
    """`method` such as JobReader.GetJob; "" where none is called."""

    needs: Action | Open
    method: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the path → field of the request, where they differ."""
    whole: bool = True
    """It is the whole method, not a part or form of it."""


# Calls that can take long at a coordinator that works: a filter with few hits reads the whole audit log, and a check a part of it.
# A log-archiver counts the chunks of whole days; a part of a check of the archive goes on until the end of an object. A coordinator counts up to
# 200,000 runs of half a span after half a span.
SLOW_CALLS: Mapping[str, float] = {
    "Operations.ListAudit": 25.0,
    "Operations.VerifyAudit": 60.0,
    "Operations.Diagnose": 10.0,
    "JobReader.GetArchive": 10.0,
    "JobReader.CountRuns": 10.0,
    "Operations.VerifyArchive": 60.0,
}
"""Method → time limit of one call, seconds."""


def _rule(path: str, route: Route, whole: bool) -> RouteRule:
    """The action of a route is that of its method (full name), so both decide by one rule. Raises KeyError for a method without an action."""
    method = path.removeprefix(f"/{PACKAGE}.").replace("/", ".")
    if method == AUTHENTICATE:
        return RouteRule(Open.SIGNED_IN, method, whole=whole)
    person = PERSON_RULES[path]
    needs = Open.SIGNED_IN if person.about is About.OWN else person.action
    names = zip(_PARAMETER.findall(route.published), _PARAMETER.findall(route.path), strict=True)
    return RouteRule(needs, method, {published: name for published, name in names if published != name}, whole)


ROUTE_RULES: Mapping[str, RouteRule] = {
    "GET /openapi.json": RouteRule(Open.PUBLIC, ""),
    **{
        str(route): _rule(method, route, number == 0)
        for method, rule in RULES.items()
        for number, route in enumerate(rule.rest)
    },
}
"""Method and path below PREFIX → rule."""


def is_api(path: str) -> bool:
    """Whether a request is for the API, whatever its route."""
    return path == "/api" or (path.startswith("/api/") and path != DOCS)


def is_for_programs(path: str) -> bool:
    """Whether a request is not of a browser: its errors are problem documents, and another gate than that of sessions admits it."""
    return is_api(path) or path.startswith("/hooks/") or path == "/join"


def may_try(role: str, needs: Action | Open) -> bool:
    """Whether a person whose highest role is `role` ("" = none) can be allowed this at all."""
    if not isinstance(needs, Action):
        return True
    return role in set(Role) and Role(role).rank >= MINIMUM[needs].rank


def may_offer(role: str, rules: Sequence[Rule], needs: Action, target: Target | None, *, labelled: bool) -> bool:
    """Whether a page offers an action to a person with these rules; none are known of coordinators of an earlier release, then the role decides.

    `target`: None = it is about no job. `labelled`: it has the labels of its job; without them what some labels would allow is offered.
    """
    if target is None or not rules or not may_try(role, needs):
        return may_try(role, needs)
    person = Person(name="", rules=tuple(rules))
    return may(person, needs, target).allowed if labelled else may_by_some_labels(person, needs, target)


def may_offer_somewhere(role: str, rules: Sequence[Rule], needs: Action, target: Target) -> bool:
    """`may_offer` of what is to have a scope that is not chosen yet: whether the action is allowed with some scope."""
    scopes = {("", ""), *((rule.selector.scope, rule.selector.scope_id) for rule in rules)}
    return any(
        may_offer(role, rules, needs, replace(target, scope=scope, scope_id=scope_id), labelled=True)
        for scope, scope_id in scopes
    )


def check_worker(rule: RouteRule, worker_type: str) -> None:
    """Raises PERMISSION_DENIED for a token that is for external steps of one type, at a route that is for something else."""
    if worker_type and rule.method != AUTHENTICATE and not rule.method.startswith("ExternalWork."):
        message = f"the token is for external work of worker_type {worker_type!r} only; use another token"
        raise TobanError(ErrorCode.PERMISSION_DENIED, message)


def check_routes(served: Collection[str]) -> None:
    """Raises CONFIG_INVALID when a served route has no rule, or a rule has no route."""
    missing, stale = sorted(set(served) - set(ROUTE_RULES)), sorted(set(ROUTE_RULES) - set(served))
    if missing:
        raise TobanError(
            ErrorCode.CONFIG_INVALID,
            f"no method has the route {', '.join(missing)}; add it to the rule of its method in proto/",
        )
    if stale:
        raise TobanError(
            ErrorCode.CONFIG_INVALID,
            f"no endpoint has the route {', '.join(stale)} of a rule in proto/; remove it there",
        )
