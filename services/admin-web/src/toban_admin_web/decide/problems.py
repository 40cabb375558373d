"""Statuses of HTTP for errors of the cluster, and errors of the API as documents of RFC 9457."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toban_domain.errors import GRPC_STATUS, ErrorCode, TobanError

CONTENT_TYPE = "application/problem+json"
RETRY_SECONDS = 5
# Status of gRPC: that of the API, and that of a page. A page stands before the cluster: it shows what the cluster cannot do now as 503, and what
# its person can do nothing about as 502.
_BY_STATUS = {
    "INVALID_ARGUMENT": (400, 400),
    "UNAUTHENTICATED": (401, 502),
    "PERMISSION_DENIED": (403, 502),
    "NOT_FOUND": (404, 404),
    "ALREADY_EXISTS": (409, 502),
    "FAILED_PRECONDITION": (409, 502),
    "ABORTED": (409, 502),
    "RESOURCE_EXHAUSTED": (429, 503),
    "INTERNAL": (500, 502),
    "UNIMPLEMENTED": (501, 501),
    "UNAVAILABLE": (503, 503),
    "DEADLINE_EXCEEDED": (504, 503),
}
# Errors of HTTP itself, where no coordinator was asked.
_OF_HTTP = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "DEADLINE_EXCEEDED",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "MISDIRECTED_REQUEST",
}
TITLES = {
    400: "The request is invalid",
    401: "Sign in",
    403: "Not allowed",
    404: "Not found",
    405: "The method is not for this path",
    409: "The object is not in the required state",
    412: "The object has changed",
    413: "The request is too large",
    414: "The address is longer than 4 KiB",
    415: "The body is not JSON",
    421: "The host name is not this site's",
    429: "Too many requests",
    500: "A defect of Toban",
    501: "Not available in this version",
    503: "No coordinator answers",
    504: "No answer in time",
}


def status_of(error: TobanError) -> int:
    """The status for an error of a coordinator, in the API and where a form shows why it was refused."""
    return 413 if error.code is ErrorCode.PAYLOAD_TOO_LARGE else _BY_STATUS[GRPC_STATUS[error.code]][0]


def page_status(error: TobanError) -> int:
    """The status of a page that cannot show what it is for."""
    return _BY_STATUS[GRPC_STATUS[error.code]][1]


def code_of_http(status: int) -> str:
    """The code for an error of HTTP itself."""
    return _OF_HTTP.get(status, ErrorCode.INTERNAL.value if status >= 500 else ErrorCode.INVALID_ARGUMENT.value)


def retry_after(error: TobanError) -> int | None:
    """Seconds after which the same request makes sense again; None where waiting does not help."""
    given = error.detail.get("retry_after_seconds")
    if isinstance(given, int | float) and not isinstance(given, bool):
        return max(1, int(given))
    return RETRY_SECONDS if status_of(error) in (429, 503) else None


def document(
    *, status: int, code: str, message: str, path: str, request_id: str, detail: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The members of a problem. `message` names what is wrong, where, and the remedy; `errors` has a line for each mistake."""
    found = dict(detail or {})
    errors = found.pop("errors", [])
    return {
        "type": f"urn:toban:error:{code}",
        "title": TITLES.get(status, "The request failed"),
        "status": status,
        "detail": message,
        "instance": path,
        "code": code,
        "request_id": request_id,
        "errors": [_mistake(one) for one in errors if isinstance(one, Mapping)] if isinstance(errors, list) else [],
        "context": found,
    }


def _mistake(given: Mapping[str, Any]) -> dict[str, str]:
    """Its place and its text; mistakes in manifests come with source, path and hint."""
    places = (given.get("where"), given.get("source"), given.get("path"))
    texts = (given.get("message"), given.get("hint"))
    return {
        "where": ".".join(str(place) for place in places if place),
        "message": "; ".join(str(text) for text in texts if text),
    }
