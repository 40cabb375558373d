"""The blueprint of the API: each endpoint behind the gate, with its input read and its answer written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Flask, Response, g, request

from toban_admin_web.decide.api_rules import PREFIX, ROUTE_RULES, Open, check_routes, check_worker, is_api
from toban_admin_web.ports.people import Credential, SignedIn
from toban_admin_web.views.api import gate, inputs
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.api.request_rate import add_headers
from toban_admin_web.views.view_context import caller, context
from toban_domain.errors import ErrorCode, TobanError

BLUEPRINT = "api"
PRECONDITION_FAILED = 412
# Parameters of paths that are numbers, and those that may contain a slash.
_CONVERTERS = {"id": "id", "worker_id": "id", "limit": "path"}


def install(app: Flask, endpoints: Sequence[Endpoint]) -> None:
    """Serves `endpoints` below PREFIX. Raises CONFIG_INVALID for a route without a rule, and for another route below /api."""
    check_routes([endpoint.route for endpoint in endpoints])
    blueprint = Blueprint(BLUEPRINT, __name__, url_prefix=PREFIX)
    for endpoint in endpoints:
        blueprint.add_url_rule(_flask_path(endpoint.path), endpoint.name, _view(endpoint), methods=[endpoint.verb])
    blueprint.after_request(add_headers)
    app.register_blueprint(blueprint)
    for rule in app.url_map.iter_rules():
        if is_api(rule.rule) and not rule.endpoint.startswith(f"{BLUEPRINT}."):
            raise TobanError(ErrorCode.CONFIG_INVALID, f"{rule.rule} is below /api and not behind its gate; move it")


def _flask_path(path: str) -> str:
    def converted(found: re.Match[str]) -> str:
        return f"<{_CONVERTERS.get(found[1], 'string')}:{found[1]}>"

    return re.sub(r"{(\w+)}", converted, path)


def _view(endpoint: Endpoint) -> Callable[..., Response]:
    def view(**path: Any) -> Response:
        call = _admitted(endpoint, path)
        try:
            return _response(endpoint, endpoint.answer_to(call))
        except TobanError as error:
            if call.condition_failed(error):
                g.refused_status = PRECONDITION_FAILED
            raise

    return view


def _admitted(endpoint: Endpoint, path: dict[str, Any]) -> Call:
    """The gate first: answers about input are for people who may use the route."""
    rule = ROUTE_RULES[endpoint.route]
    shown, person = Credential("", ""), SignedIn(user="", role="")
    if rule.needs is Open.PUBLIC:
        context().rate.count(context().gate.address())
    else:
        shown = gate.credential()
        person = gate.admit(rule, shown)
        check_worker(rule, person.worker_type)
    g.credential, g.person = shown, person
    return Call(
        endpoint=endpoint,
        path=inputs.path_of(endpoint, path),
        query=inputs.query_of(endpoint),
        body=inputs.body_of(endpoint),
        key=inputs.key_of(endpoint),
        expected=inputs.expected_version(endpoint),
        person=person,
        caller=caller(),
    )


def _response(endpoint: Endpoint, made: Any) -> Response:
    if isinstance(made, Response):
        return made
    answer, status = made if isinstance(made, tuple) else (made, endpoint.status)
    tag = f'"{answer.version}"' if endpoint.tagged else ""
    if tag and request.method == "GET" and tag in _tags(request.headers.get("If-None-Match", "")):
        return Response(status=304, headers={"ETag": tag})
    response = Response(answer.model_dump_json(), status, content_type="application/json")
    if tag:
        response.headers["ETag"] = tag
    return response


def _tags(header: str) -> set[str]:
    return {one.strip().removeprefix("W/") for one in header.split(",")}
