"""Reads what a request of the API gives: path, query, body and conditions. Every mistake is an INVALID_ARGUMENT with its place."""

from __future__ import annotations

import json
import re
from typing import Any, get_origin

from flask import request
from pydantic import BaseModel, ValidationError
from werkzeug.exceptions import UnsupportedMediaType

from toban_admin_web.decide.api_rules import ROUTE_RULES
from toban_admin_web.decide.request_input import MAX_NAME, Input
from toban_admin_web.views.api.endpoint import Endpoint
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import MAX_NESTING, deeper_than

MAX_BODY_BYTES = 2 * 1024 * 1024
# With the number of a run behind it, it fits into the key of the run.
MAX_KEY = 180
_TAG = re.compile(r'(?:W/)?"([0-9]{1,15})"')
_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY}}}")


def path_of(endpoint: Endpoint, given: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the path by the fields that they are."""
    for name, value in given.items():
        if isinstance(value, str) and len(value) > MAX_NAME:
            raise invalid(f"path.{name}", f"has more than {MAX_NAME} characters")
    renamed = ROUTE_RULES[endpoint.route].parameters
    return {renamed.get(name, name): value for name, value in given.items()}


def query_of(endpoint: Endpoint) -> Input | None:
    """The query; None for a route without one, which refuses any."""
    kind = endpoint.query or Input
    given: dict[str, Any] = {}
    for name, values in request.args.lists():
        field = kind.model_fields.get(name)
        many = field is not None and get_origin(field.annotation) is list
        if not many and len(values) > 1:
            raise invalid(f"query.{name}", "is given more than once")
        given[name] = values if many else values[0]
    found = _validated(kind, given, "query")
    return found if endpoint.query is not None else None


def body_of(endpoint: Endpoint) -> Input | None:
    """The body; None for a route without one, which refuses any."""
    if endpoint.body is None:
        if request.content_length:
            raise invalid("body", "is not for this route, which takes none")
        return None
    request.max_content_length = MAX_BODY_BYTES
    text = request.get_data()
    if not text and endpoint.body_optional:
        return endpoint.body()
    if request.mimetype != "application/json":
        raise UnsupportedMediaType
    try:
        given = json.loads(text.decode(), parse_constant=_no_number)
    except ValueError:
        raise invalid("body", "is no JSON in UTF-8") from None
    except RecursionError:
        raise _too_deep() from None
    if deeper_than(given, 2 * MAX_NESTING):
        raise _too_deep()
    try:
        # Strict, and from the text, where times are still texts.
        return endpoint.body.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise _mistakes(error, endpoint.body, "body") from None


def key_of(endpoint: Endpoint) -> str:
    """The header Idempotency-Key; "" without it."""
    given = request.headers.get("Idempotency-Key")
    if given is None:
        return ""
    if not endpoint.idempotent:
        raise invalid("header Idempotency-Key", "is not for this route, which has the effect of once without it")
    if not _KEY.fullmatch(given):
        raise invalid("header Idempotency-Key", f"has 1 to {MAX_KEY} printable characters of ASCII, without spaces")
    return given


def expected_version(endpoint: Endpoint) -> int | None:
    """The version that the caller saw: `If-Match: "3"`, or 0 for `If-None-Match: *`; None without a condition."""
    if not endpoint.conditional:
        return None
    match, none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if none_match is not None:
        if none_match.strip() != "*" or match is not None:
            raise invalid("header If-None-Match", "is * here, for an object that does not exist yet, without If-Match")
        return 0
    if match is None or match.strip() == "*":
        return None
    found = _TAG.fullmatch(match.strip())
    if found is None:
        raise invalid("header If-Match", 'is one ETag as GET gives it, such as "3"')
    return int(found[1])


def invalid(where: str, message: str) -> TobanError:
    """INVALID_ARGUMENT for one mistake."""
    detail = {"errors": [{"where": where, "message": message}]}
    return TobanError(ErrorCode.INVALID_ARGUMENT, f"{where}: {message}; correct the request", detail=detail)


def _too_deep() -> TobanError:
    return invalid("body", f"is nested more than {2 * MAX_NESTING} levels deep")


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _validated(kind: type[Input], given: Any, place: str) -> Input:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _mistakes(error, kind, place) from None


def _mistakes(error: ValidationError, kind: type[BaseModel], place: str) -> TobanError:
    found = [
        {"where": ".".join([place, *map(str, one["loc"])])[:200], "message": _text(one["type"], one["msg"], kind)}
        for one in error.errors(include_url=False, include_input=False, include_context=False)[:20]
    ]
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    message = f"{first['where']}: {first['message']}{more}; correct the request"
    return TobanError(ErrorCode.INVALID_ARGUMENT, message, detail={"errors": found})


def _text(kind: str, message: str, model: type[BaseModel]) -> str:
    if kind == "extra_forbidden":
        return f"there is no such field; there are {', '.join(model.model_fields) or 'none'}"
    # Leaving a choice out is no choice to write.
    return message.replace("Input should be '', ", "Input should be ", 1)
