"""The error pages: what failed, which addresses were tried, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, Response, g, make_response, render_template, request
from werkzeug.exceptions import HTTPException

from toban_admin_web.decide.api_rules import is_for_programs
from toban_admin_web.decide.filters import wants_part
from toban_admin_web.decide.problems import RETRY_SECONDS, page_status
from toban_admin_web.server import api_problems
from toban_domain.errors import GRPC_STATUS, ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_runtime.ids import IdSource

UNREACHABLE = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The content of an error page. `name` selects the texts problem.NAME.title, .text and .remedy."""

    status: int
    name: str
    message: str = ""
    tried: tuple[str, ...] = ()
    service: str = ""
    error_id: str = ""

    @property
    def retry(self) -> bool:
        """Whether the page reloads itself."""
        return self.status == 503


def install(app: Flask, ids: IdSource) -> None:
    """Error pages for every error of `app`, problem documents for those of the API."""

    def from_cluster(error: TobanError) -> Response:
        return api_problems.from_cluster(error) if is_for_programs(request.path) else _respond(_from_cluster(error))

    def from_http(error: HTTPException) -> Response:
        return api_problems.from_http(error) if is_for_programs(request.path) else _respond(_from_http(error))

    def from_defect(error: Exception) -> Response:
        problem = _from_bug(error, ids.token_hex(6))
        return api_problems.from_defect(problem.error_id) if is_for_programs(request.path) else _respond(problem)

    app.register_error_handler(TobanError, from_cluster)
    app.register_error_handler(HTTPException, from_http)
    app.register_error_handler(Exception, from_defect)


def _from_cluster(error: TobanError) -> Problem:
    tried = error.detail.get("addresses")
    if error.code is ErrorCode.UNAUTHENTICATED and error.detail.get("sign_in"):
        return Problem(status=401, name="signed_out")
    if error.code is ErrorCode.PERMISSION_DENIED and error.detail.get("user"):
        return Problem(status=403, name="forbidden", message=error.message)
    return Problem(
        status=page_status(error),
        name=_name(error.code),
        message=error.message,
        tried=tuple(str(one) for one in tried) if isinstance(tried, list) else (),
        service=str(error.detail.get("service", "")),
    )


def _name(code: ErrorCode) -> str:
    if code in UNREACHABLE:
        return "unreachable"
    if GRPC_STATUS[code] == "NOT_FOUND":
        return "not_found"
    return "busy" if code is ErrorCode.RESOURCE_EXHAUSTED else "rejected"


def _from_http(error: HTTPException) -> Problem:
    status = error.code or 500
    if g.get("problem"):
        message = request.environ.get("HTTP_HOST", "")[:200] if g.problem == "host" else ""
        return Problem(status=status, name=g.problem, message=message)
    names = {404: "no_page", 405: "method"}
    return Problem(status=status, name=names.get(status, "bad_request"), message=error.name)


def _from_bug(error: Exception, error_id: str) -> Problem:
    _log.error(
        "request failed with an unexpected error",
        error_id=error_id,
        request_id=g.get("request_id", ""),
        path=request.path,
        exc_info=error,
    )
    return Problem(status=500, name="internal", error_id=error_id)


def _respond(problem: Problem) -> Response:
    # The frame of the page sends no read to the coordinators then.
    g.failed = problem.name
    plain = wants_part(request.args) or request.accept_mimetypes.best == "text/event-stream"
    body = f"{problem.message or problem.name}\n" if plain else render_template("error.html", problem=problem)
    response = make_response(body, problem.status)
    response.content_type = "text/plain; charset=utf-8" if plain else "text/html; charset=utf-8"
    if problem.retry:
        response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response
