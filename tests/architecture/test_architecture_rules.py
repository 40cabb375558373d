"""The rules in the protos are those of the tables of callers, of people, of what requests name and of routes."""

import re

from toban_admin_web.decide.api_rules import ROUTE_RULES
from toban_coordinator.server.person_targets import LISTED, NAMED
from toban_transport.authz import METHOD_RULES
from toban_transport.person_rules import BY_CERTIFICATE, BY_TICKET, PERSON_RULES, WITHOUT_PERSON
from toban_transport.rules import PACKAGE, RULES, Authority


def test_rules_are_those_of_the_tables() -> None:
    health = {method for method in METHOD_RULES if method.startswith("/grpc.health.")}
    assert {method: rule.callers for method, rule in RULES.items()} == {
        method: callers for method, callers in METHOD_RULES.items() if method not in health
    }
    assert {method: (rule.person.action, rule.person.about.value) for method, rule in RULES.items() if rule.person} == {
        method: (rule.action, rule.about.value) for method, rule in PERSON_RULES.items()
    }
    for authority, table in (
        (Authority.REQUEST, WITHOUT_PERSON),
        (Authority.TICKET, BY_TICKET),
        (Authority.CERTIFICATE, BY_CERTIFICATE),
    ):
        assert {method for method, rule in RULES.items() if rule.authority is authority} == table
    assert {method: list(rule.items) for method, rule in RULES.items() if rule.items} == LISTED
    assert {method for method, rule in RULES.items() if rule.names} <= set(NAMED)
    routes = {
        re.sub(r"{(\w+)=\w+}", r"{\1}", route): method.removeprefix(f"/{PACKAGE}.").replace("/", ".")
        for method, rule in RULES.items()
        for route in rule.rest
    }
    assert routes == {route: rule.method for route, rule in ROUTE_RULES.items() if rule.method}
