"""The rule of every method that people reach has a right for them; docs/architecture.md has the rules."""

import pytest

from toban_domain.errors import TobanError
from toban_transport.authz import ADMIN_CLI, ADMIN_WEB, METHOD_RULES
from toban_transport.person_rules import BY_CERTIFICATE, BY_TICKET, PERSON_RULES, WITHOUT_PERSON, check_person_rules


def test_every_method_for_people_has_a_row() -> None:
    people = {method for method, callers in METHOD_RULES.items() if callers & {ADMIN_WEB, ADMIN_CLI}}
    decided = {*PERSON_RULES, *WITHOUT_PERSON, *BY_TICKET, *BY_CERTIFICATE}
    assert {method for method in people - decided if not method.startswith("/grpc.health")} == set()
    assert decided <= people
    check_person_rules(decided | {"/grpc.health.v1.Health/Check", "/toban_proto.v1.Peer/Ping"})


def test_a_method_without_a_row_stops_the_start() -> None:
    with pytest.raises(TobanError, match=r"no action in the rule of /a\.B/C; add it"):
        check_person_rules({"/a.B/C"}, {"/a.B/C": frozenset({ADMIN_CLI})})
