"""The API as OpenAPI 3.1, from its endpoints. Usage: python -m toban_admin_web.views.api.openapi FILE [--check]"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from toban_admin_web.decide.api_rules import PREFIX, ROUTE_RULES, Open
from toban_admin_web.decide.problems import CONTENT_TYPE, TITLES
from toban_admin_web.decide.request_input import MAX_ID, MAX_NAME
from toban_admin_web.views.api.answers import Problem
from toban_admin_web.views.api.endpoint import Endpoint
from toban_domain.access import MINIMUM, Action

VERSION = "1"
# Levels of what is written on one line, such as a parameter with its schema.
_ONE_LINE = 2
_REF = "#/components/schemas/{model}"
_NUMBERS = frozenset({"id", "worker_id"})
_DESCRIPTION = (
    "What the site and programs ask of a cluster. Whatever has no path here, the command line has (`toban --help`). "
    "Errors are problem documents (RFC 9457) with a stable `code`. "
    "Lists have a `next_cursor`; give it as `cursor` to read on."
)
# Beside those of its own, any route may answer with these.
_ALWAYS = (400, 414, 421, 429, 500, 503, 504)
_SECURED = (401, 403)
_OF_COORDINATORS = (404, 409, 501)
_OF_BODIES = (413, 415)
_CONDITION = 412
# The HTTP server answers it before the API has the request, without a problem document.
_TOO_LONG = 414
_STATUSES = sorted({*_ALWAYS, *_SECURED, *_OF_COORDINATORS, *_OF_BODIES, _CONDITION})


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole description."""
    models: list[tuple[type[BaseModel], Any]] = [(Problem, "serialization")]
    for endpoint in endpoints:
        models += [(endpoint.body, "validation")] if endpoint.body else []
        models += [(endpoint.answer, "serialization")] if endpoint.answer else []
    refs, schemas = models_json_schema(list(dict.fromkeys(models)), ref_template=_REF)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(PREFIX + endpoint.path, {})[endpoint.verb.lower()] = _operation(endpoint, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Toban", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas["$defs"].items())),
            "responses": {f"Problem{status}": _problem(status, refs) for status in _STATUSES},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token: `toban token add`."}
            },
        },
    }


def as_text(endpoints: Sequence[Endpoint]) -> str:
    """As it is committed and served: a line for each field, so that a difference can be read."""
    return _lines(document(endpoints)) + "\n"


def _lines(value: Any, indent: str = "", key: str = "") -> str:
    """JSON, indented, with small values on one line and each field of a schema (what is below `properties`)."""
    fields = key == "properties" and bool(value)
    if not fields and _levels(value) <= _ONE_LINE:
        return json.dumps(value, ensure_ascii=False)
    inner = f"{indent} "

    def text(part: Any, name: str = "") -> str:
        return json.dumps(part, ensure_ascii=False) if fields else _lines(part, inner, name)

    if isinstance(value, list):
        parts, (begin, end) = [text(part) for part in value], "[]"
    else:
        parts, (begin, end) = [f"{json.dumps(name)}: {text(part, name)}" for name, part in value.items()], "{}"
    return begin + "\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}{end}"


def _levels(value: Any) -> int:
    """How many objects and lists are within each other."""
    if not isinstance(value, dict | list):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_levels, parts), default=0)


def _operation(endpoint: Endpoint, refs: Any) -> dict[str, Any]:
    needs = ROUTE_RULES[endpoint.route].needs
    made: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[1]],
        "security": [] if needs is Open.PUBLIC else [{"token": []}],
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint), *_headers(endpoint)],
    }
    if isinstance(needs, Action):
        made["description"] = f"Needs role {MINIMUM[needs]}."
    if endpoint.body is not None:
        content = {"application/json": {"schema": refs[endpoint.body, "validation"]}}
        made["requestBody"] = {"required": not endpoint.body_optional, "content": content}
    made["responses"] = {**_successes(endpoint, refs), **_failures(endpoint)}
    return made


def _successes(endpoint: Endpoint, refs: Any) -> dict[str, Any]:
    schema = refs[endpoint.answer, "serialization"] if endpoint.answer is not None else {}
    headers = {"X-Request-Id": {"schema": {"type": "string"}}}
    headers |= {f"RateLimit-{name}": {"schema": {"type": "integer"}} for name in ("Limit", "Remaining", "Reset")}
    if endpoint.tagged:
        headers["ETag"] = {"schema": {"type": "string"}}
    content = {kind: {"schema": schema} for kind in endpoint.content_types}
    one = {"description": endpoint.summary, "headers": headers, "content": content}
    found: dict[str, Any] = {str(status): one for status in sorted({endpoint.status, *endpoint.also})}
    if endpoint.tagged and endpoint.verb == "GET":
        found["304"] = {"description": "It has not changed since the version of If-None-Match."}
    return found


def _failures(endpoint: Endpoint) -> dict[str, Any]:
    public = ROUTE_RULES[endpoint.route].needs is Open.PUBLIC
    statuses = {*_ALWAYS, *(() if public else (*_SECURED, *_OF_COORDINATORS))}
    statuses |= set(_OF_BODIES) if endpoint.body is not None else set()
    statuses |= {_CONDITION} if endpoint.conditional else set()
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(statuses)}


def _problem(status: int, refs: Any) -> dict[str, Any]:
    if status == _TOO_LONG:
        return {"description": TITLES[status]}
    content = {CONTENT_TYPE: {"schema": refs[Problem, "serialization"]}}
    return {"description": TITLES[status], "content": content}


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0, "maximum": MAX_ID}
            if name in _NUMBERS
            else {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
        }
        for name in names
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    schema = endpoint.query.model_json_schema(ref_template=_REF, mode="validation")
    defined, required = schema.get("$defs", {}), schema.get("required", [])
    found = []
    for name, given in schema["properties"].items():
        inner = _inlined(given, defined)
        one = {"name": name, "in": "query", "required": name in required, "schema": inner}
        if "description" in inner:
            one["description"] = inner.pop("description")
        found.append(one)
    return found


def _inlined(schema: Any, defined: dict[str, Any]) -> Any:
    """Without references: a query has no schema of its own among the components. A time that may be left out is a time."""
    if isinstance(schema, list):
        return [_inlined(one, defined) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(defined[schema["$ref"].rpartition("/")[2]], defined)
    choices = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(choices) == 1:
        schema = {**{k: v for k, v in schema.items() if k not in ("anyOf", "default")}, **choices[0]}
    return {name: _inlined(one, defined) for name, one in schema.items()}


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    found = []
    if endpoint.idempotent:
        found.append(("Idempotency-Key", "The same request with the same key has its effect once.", r"^[!-~]{1,180}$"))
    if endpoint.conditional:
        found.append(
            (
                "If-Match",
                'The ETag that you saw, such as "3"; 412 when it has changed.',
                r'^(\*|(W/)?"[0-9]{1,15}")$',
            )
        )
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": {"type": "string", "pattern": pattern},
        }
        for name, text, pattern in found
    ]


def main(arguments: Sequence[str]) -> int:
    """Writes the file, or with --check compares it; 1 when it is stale."""
    from toban_admin_web.views.api.all_endpoints import ENDPOINTS

    path, text = Path(arguments[0]), as_text(ENDPOINTS)
    if "--check" in arguments:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{path} is not current; run `make docs`\n")
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
