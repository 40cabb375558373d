"""Every route by every role, against the reviewed file verdicts.txt; and the table of rules against the methods of the coordinators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from toban_admin_web.decide.api_rules import ROUTE_RULES, Open, check_routes
from toban_admin_web.views.api import routes
from toban_admin_web.views.api.all_endpoints import ENDPOINTS
from toban_admin_web.views.api.endpoint import Endpoint
from toban_domain.access import Action
from toban_domain.errors import TobanError
from toban_transport.authz import ADMIN_CLI, ADMIN_WEB, METHOD_RULES
from toban_transport.person_rules import PERSON_RULES

ROLES = ["", "none", "viewer", "operator", "editor", "admin", "worker"]
VERDICTS = {401: "--", 403: "no"}
LINES = Path(__file__).with_name("verdicts.txt").read_text(encoding="utf-8").splitlines()
REVIEWED = {" ".join(cells[:2]): cells[2:] for line in LINES if (cells := line.split()) and not line.startswith("#")}


def test_the_reviewed_file_has_every_route_once() -> None:
    assert [line.split()[:2] for line in LINES if not line.startswith("#")] == [route.split() for route in REVIEWED]
    assert set(REVIEWED) == set(ROUTE_RULES) == {endpoint.route for endpoint in ENDPOINTS}


@pytest.mark.parametrize("role", ROLES)
def test_every_route_by_every_role(api: Any, role: str) -> None:
    found = {}
    for route in REVIEWED:
        verb, _, path = route.partition(" ")
        filled = re.sub(r"{(\w+)}", lambda name: "1" if name[1] in ("id", "worker_id") else "x", path)
        api.further.calls.clear()
        response = api.ask(verb, filled, role=role)
        found[route] = VERDICTS.get(response.status_code, "ok")
        assert found[route] == "ok" or api.further.calls == [], route
        assert response.status_code < 500, route
        response.close()
    assert found == {route: verdicts[ROLES.index(role)] for route, verdicts in REVIEWED.items()}


def test_each_method_of_a_route_is_for_the_site() -> None:
    for route, rule in ROUTE_RULES.items():
        if isinstance(rule.needs, Action):
            method = f"/toban_proto.v1.{rule.method.replace('.', '/')}"
            assert ADMIN_WEB in METHOD_RULES[method], route
    assert {route for route, rule in ROUTE_RULES.items() if rule.needs is Open.PUBLIC} == {"GET /openapi.json"}


def test_every_method_for_people_has_a_route() -> None:
    """Left out: what only the command has."""
    served = {rule.method for rule in ROUTE_RULES.values()}
    methods = {method.removeprefix("/toban_proto.v1.").replace("/", ".") for method in PERSON_RULES}
    of_the_command = {
        method for method in methods if METHOD_RULES[f"/toban_proto.v1.{method.replace('.', '/')}"] == {ADMIN_CLI}
    }
    assert methods - served == of_the_command
    assert {method.partition(".")[0] for method in of_the_command} == {"Operations", "Accounts"}


def test_a_route_without_a_rule_stops_the_start() -> None:
    with pytest.raises(TobanError, match="no method has the route GET /further; add it to the rule"):
        routes.install(Flask("x"), [*ENDPOINTS, Endpoint(route="GET /further", summary="", answer=None)])
    with pytest.raises(TobanError, match=r"no endpoint has the route GET /openapi\.json of a rule"):
        check_routes([route for route in ROUTE_RULES if route != "GET /openapi.json"])


def test_a_route_beside_the_gate_stops_the_start() -> None:
    app = Flask("x", static_folder=None)
    app.url_map.converters["id"] = app.url_map.converters["int"]
    app.add_url_rule("/api/v2/jobs", "open", lambda: "")
    with pytest.raises(TobanError, match="not behind its gate"):
        routes.install(app, ENDPOINTS)


def test_a_token_of_an_external_worker_is_told_what_it_is_for(api: Any) -> None:
    refused = api.ask("GET", "/jobs", role="worker")
    assert refused.status_code == 403 and "external work of worker_type 'transcode' only" in refused.json["detail"]
    session = api.ask("GET", "/session", role="worker").json
    assert (session["role"], session["worker_type"]) == ("operator", "transcode")
