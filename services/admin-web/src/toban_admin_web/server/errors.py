"""What a browser sees when something is wrong: what happened, where, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, Response, g, make_response, render_template, request
from werkzeug.exceptions import HTTPException

from toban_admin_web.views.site import site, wants_part
from toban_domain.errors import GRPC_STATUS, ErrorCode, TobanError
from toban_observability.logs import get_logger

RETRY_SECONDS = 5
UNREACHABLE = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 503,
    "RESOURCE_EXHAUSTED": 503,
}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What the page says. `name` picks the words: problem.NAME.title, .text, .mend."""

    status: int
    name: str
    message: str = ""
    tried: tuple[str, ...] = ()
    service: str = ""
    error_id: str = ""

    @property
    def retry(self) -> bool:
        """Whether the page asks again by itself."""
        return self.status == 503


def install(app: Flask) -> None:
    """Pages for every error of `app`."""
    app.register_error_handler(TobanError, lambda error: _answer(_of_cluster(error)))
    app.register_error_handler(HTTPException, lambda error: _answer(_of_http(error)))
    app.register_error_handler(Exception, lambda error: _answer(_of_bug(error)))


def _of_cluster(error: TobanError) -> Problem:
    tried = error.detail.get("addresses")
    return Problem(
        status=_HTTP.get(GRPC_STATUS[error.code], 502),
        name=_name(error.code),
        message=error.message,
        tried=tuple(str(one) for one in tried) if isinstance(tried, list) else (),
        service=str(error.detail.get("service", "")),
    )


def _name(code: ErrorCode) -> str:
    if code in UNREACHABLE:
        return "unreachable"
    if GRPC_STATUS[code] == "NOT_FOUND":
        return "thing"
    return "busy" if code is ErrorCode.RESOURCE_EXHAUSTED else "cluster"


def _of_http(error: HTTPException) -> Problem:
    status = error.code or 500
    if g.get("problem"):
        return Problem(status=status, name=g.problem, message=request.environ.get("HTTP_HOST", "")[:200])
    names = {404: "page", 405: "method"}
    return Problem(status=status, name=names.get(status, "request"), message=error.name)


def _of_bug(error: Exception) -> Problem:
    error_id = site().ids.token_hex(6)
    _log.error("page failed", error_id=error_id, path=request.path, exc_info=error)
    return Problem(status=500, name="bug", error_id=error_id)


def _answer(problem: Problem) -> Response:
    short = wants_part() or request.accept_mimetypes.best == "text/event-stream"
    body = f"{problem.message or problem.name}\n" if short else render_template("error.html", problem=problem)
    answer = make_response(body, problem.status)
    answer.content_type = "text/plain; charset=utf-8" if short else "text/html; charset=utf-8"
    if problem.retry:
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer
