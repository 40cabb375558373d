"""Every route of REST has a command, and every method that commands call has a route, or stands in a list with the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from toban_cli.rest.routes import NO_ROUTE, ROUTES, route_for
from toban_proto.v1 import coordinator_pb2, hooks_pb2, webhooks_pb2

ROOT = Path(__file__).parents[3]
PATHS = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
VERBS = {"get", "put", "post", "patch", "delete"}
# Routes that no row of ROUTES has.
NO_COMMAND = {
    "GET /openapi.json": "it describes the interface for programs",
    "POST /jobs/{}/runs": "`run start` uses POST /runs, which starts many",
    "PUT /jobs/{}": "commands use POST /apply, for one definition as for many",
    "PUT /schedules/{}": "commands use POST /apply",
    "PUT /triggers/{}": "commands use POST /apply",
    "GET /webhooks/{}": "`webhook list` names all",
    "GET /executor-groups/{}": "`group list` names all",
    "GET /jobs/{}/logs": "it comes in parts; `job logs` reads the stream of a log-archiver",
    **dict.fromkeys(
        (
            f"POST /external-work/{method}"
            for method in ("claims", "heartbeats", "progress", "log", "complete", "fail", "acknowledge-cancel")
        ),
        "it is for external workers",
    ),
    "GET /settings/{}": "`settings get` reads the list, to name the nearest setting",
    "GET /runs/{}/stream": "toban_cli.rest.logs reads it",
    "GET /runs/{}/logs": "toban_cli.rest.logs reads it",
    "GET /runs/{}/logs/stream": "toban_cli.rest.logs reads it",
}
# Methods that commands over gRPC need, and commands over REST do not.
NO_NEED = {
    "JobReader.GetReadTicket": "the site fetches read tickets itself",
    "JobReader.WatchRun": "toban_cli.rest.logs reads the stream of the route",
    "Accounts.StartOidcSignIn": "browsers sign in with a provider",
    "Accounts.SignInWithOidc": "browsers sign in with a provider",
    "Accounts.SignOut": "it ends sessions of browsers",
}


def plain(route: str) -> str:
    """A route without the names of its parameters."""
    return re.sub(r"{\w+}", "{}", route)


SERVED = {
    plain(f"{verb.upper()} {path.removeprefix('/api/v1')}")
    for path, verbs in PATHS.items()
    for verb in verbs
    if verb in VERBS
}
USED = {plain(f"{route.verb} {route.path}") for route in ROUTES.values()}


def test_every_route_has_a_command_or_a_reason() -> None:
    assert set(NO_COMMAND) == SERVED - USED
    assert set() == USED - SERVED


def test_every_method_that_people_call_has_a_route_or_a_reason() -> None:
    methods = {
        f"{service}.{method.name}"
        for module, service in (
            (coordinator_pb2, "JobReader"),
            (coordinator_pb2, "JobControl"),
            (coordinator_pb2, "Operations"),
            (coordinator_pb2, "Accounts"),
            (webhooks_pb2, "Webhooks"),
            (hooks_pb2, "Hooks"),
        )
        for method in module.DESCRIPTOR.services_by_name[service].methods
    }
    routed = {key.partition(" ")[0] for key in ROUTES}
    reasons = {key.partition(" ")[0] for key in NO_ROUTE} | set(NO_NEED)
    left = {method for method in methods - routed if method not in reasons and method.partition(".")[0] not in reasons}
    assert left == set()


def test_what_has_no_route_has_none() -> None:
    for key in NO_ROUTE:
        assert key not in ROUTES and not any(one.startswith(f"{key}.") for one in ROUTES)
    assert set(NO_NEED) & {key.partition(" ")[0] for key in ROUTES} == set()


def test_the_request_decides_between_routes_of_one_method() -> None:
    assert route_for("Operations.SetLimit", {"name": "job:a", "limit": 3}) is ROUTES["Operations.SetLimit"]
    assert route_for("Operations.SetLimit", {"name": "job:a", "reset": True}) is ROUTES["Operations.SetLimit reset"]
    assert route_for("Operations.ListAudit", {"oldest_first": True}) == NO_ROUTE["Operations.ListAudit exact"]


def test_a_request_goes_where_the_route_takes_it(subtests: pytest.Subtests) -> None:
    for key, route in ROUTES.items():
        with subtests.test(key):
            path = next(path for path in PATHS if plain(path) == plain(f"/api/v1{route.path}"))
            described = PATHS[path][route.verb.lower()]
            has_body = route.verb in ("POST", "PUT", "PATCH") and not route.in_query
            # A request with nothing but its path has an empty body: the site takes none on other routes.
            assert has_body == ("requestBody" in described)
            # The groups have a reason; `resume` has its name alone.
            if route.in_query and route.verb == "PUT":
                assert any(one["in"] == "query" for one in described["parameters"])
