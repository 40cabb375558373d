"""Requests of the API: their ids, and their errors as problem documents (RFC 9457)."""

from __future__ import annotations

import json
import logging
import re

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from toban_admin_web.decide.api_rules import is_for_programs
from toban_admin_web.decide.problems import CONTENT_TYPE, code_of_http, document, retry_after, status_of
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_runtime.ids import IdSource

TOO_MANY = 429
REQUEST_ID = "X-Request-Id"
_log = get_logger(__name__)
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_REMEDY = {
    404: "there is no such path; /api/v1/openapi.json lists all of them",
    405: "the method is not for this path; the header Allow names those that are",
    413: "the body is larger than the API takes; send less at once",
    415: "send the body as application/json",
    421: "the host name is not one of this site; use its own address, or add the name to SCHEDULER_HTTP_NAMES",
}


def install(app: Flask, ids: IdSource) -> None:
    """Gives each request of the API an id: the client's own, or a new one. Its answer has it, and the log when it was refused or failed."""

    def begin() -> None:
        given = request.headers.get(REQUEST_ID, "")
        g.request_id = given if _ID.fullmatch(given) else ids.token_hex(8)

    def finish(response: Response) -> Response:
        if is_for_programs(request.path) and "request_id" in g:
            response.headers[REQUEST_ID] = g.request_id
        return response

    app.before_request(begin)
    app.after_request(finish)


def from_cluster(error: TobanError) -> Response:
    """The answer to an error of a coordinator, or of the API itself."""
    response = _logged(g.get("refused_status") or status_of(error), error.code.value, error.message, error.detail)
    seconds = retry_after(error)
    if seconds is not None:
        response.headers["Retry-After"] = str(seconds)
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="toban"'
    return response


def from_http(error: HTTPException) -> Response:
    """The answer to an error of HTTP itself."""
    status = error.code or 500
    response = _logged(status, code_of_http(status), _REMEDY.get(status, error.description or error.name), {})
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def from_defect(error_id: str) -> Response:
    """The answer to an unexpected error, which the log has under this id."""
    message = f"unexpected error {error_id}; the log of admin-web has it under this id"
    return _respond(500, ErrorCode.INTERNAL.value, message, {"error_id": error_id})


def _logged(status: int, code: str, message: str, detail: dict[str, object]) -> Response:
    """As _respond, with a line in the log; of unexpected errors the log has one already."""
    _log.log(
        _level(status),
        "request refused" if status < 500 else "request failed",
        request_id=g.get("request_id", ""),
        method=request.method,
        path=request.path,
        status=status,
        code=code,
        why=message,
    )
    return _respond(status, code, message, detail)


def _level(status: int) -> int:
    # Clients that are too fast, or try out tokens, must not fill the log.
    if status == TOO_MANY:
        return logging.DEBUG
    return logging.INFO if status < 500 else logging.WARNING


def _respond(status: int, code: str, message: str, detail: dict[str, object]) -> Response:
    body = document(
        status=status,
        code=code,
        message=message,
        path=request.path,
        request_id=g.get("request_id", ""),
        detail=detail,
    )
    return Response(json.dumps(body, ensure_ascii=False, default=str), status, content_type=CONTENT_TYPE)
