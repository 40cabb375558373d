"""Answers of the site that are no success, as the errors that the same call over gRPC raises."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toban_cli.rest.http import Reply
from toban_cli.rest.retry import retry_after
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.rest.site import Site

# Codes of HTTP itself, which no coordinator gives.
_BY_STATUS = {
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.PERMISSION_DENIED,
    404: ErrorCode.NOT_FOUND,
    412: ErrorCode.CONFLICT,
    413: ErrorCode.PAYLOAD_TOO_LARGE,
    421: ErrorCode.CONFIG_INVALID,
    429: ErrorCode.RESOURCE_EXHAUSTED,
    501: ErrorCode.UNIMPLEMENTED,
    502: ErrorCode.UNAVAILABLE,
    503: ErrorCode.UNAVAILABLE,
    504: ErrorCode.DEADLINE_EXCEEDED,
}
_DEFECT, _REDIRECT, _TOO_MANY = 500, 300, 429
# There it is the present password that is wrong.
_PASSWORD = "/account/password"
# Before the path of a mistake in a manifest: its number.
_MANIFEST = "manifests."


def read_json(reply: Reply, site: Site) -> Any:
    """The JSON of an answer. Raises what it is an error of, and CONFIG_INVALID or UNAVAILABLE for an answer that is none of Toban."""
    if reply.status == 304 or (200 <= reply.status < _REDIRECT and not reply.body):
        return {}
    if not reply.kind.endswith("json") or _REDIRECT <= reply.status < 400:
        raise _foreign(reply, site.url)
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        raise _foreign(reply, site.url) from None
    if 200 <= reply.status < _REDIRECT:
        return found
    if not isinstance(found, dict) or not isinstance(found.get("detail"), str):
        raise _foreign(reply, site.url)
    raise problem_of(reply, found, site)


def problem_of(reply: Reply, found: Mapping[str, Any], site: Site) -> TobanError:
    """The error of a problem document (RFC 9457)."""
    code = code_of(reply.status, str(found.get("code", "")))
    message = str(found["detail"])
    context = found.get("context")
    detail: dict[str, Any] = dict(context) if isinstance(context, dict) else {}
    errors = [_mistake(one) for one in found.get("errors") or () if isinstance(one, dict)]
    if errors:
        detail["errors"] = errors
    if code is ErrorCode.UNAUTHENTICATED and not str(found.get("instance", "")).endswith(_PASSWORD):
        message = f"{message.partition(';')[0]}; {site.renewal}"
    after = retry_after(reply.headers) if reply.status == _TOO_MANY else None
    if after is not None and "retry_after_seconds" not in detail:
        detail["retry_after_seconds"] = math.ceil(after)
        message += f" (try again after {math.ceil(after)} s)"
    return TobanError(code, message, detail=detail)


def code_of(status: int, name: str) -> ErrorCode:
    """The code of a problem, or the nearest for its status."""
    if name in set(ErrorCode):
        return ErrorCode(name)
    return _BY_STATUS.get(status, ErrorCode.INTERNAL if status >= _DEFECT else ErrorCode.INVALID_ARGUMENT)


def name_sources(error: TobanError, sources: Sequence[str]) -> TobanError:
    """The same error with the files of manifests in place of their numbers in the request."""
    listed = error.detail.get("errors")
    for one in listed if isinstance(listed, list) else []:
        number, dot, path = one.get("path", "").removeprefix(_MANIFEST).partition(".")
        if one.get("path", "").startswith(_MANIFEST) and number.isdigit() and int(number) < len(sources):
            one.update(source=sources[int(number)], path=path if dot else "")
    message = error.message
    for number, source in reversed(list(enumerate(sources))):
        message = message.replace(f"{_MANIFEST}{number}", source)
    return TobanError(error.code, message, detail=error.detail)


def _mistake(given: Mapping[str, Any]) -> dict[str, str]:
    return {"path": str(given.get("where", "")), "message": str(given.get("message", ""))}


def _foreign(reply: Reply, url: str) -> TobanError:
    """An answer that does not come from a site of Toban: of a proxy, or of something else at the address."""
    kind = reply.kind or "no type"
    if _REDIRECT <= reply.status < 400:
        where = reply.headers.get("location", "elsewhere")
        message = f"{url} sends requests on to {where}; use the address of the site itself (`toban login URL`)"
        return TobanError(ErrorCode.CONFIG_INVALID, message)
    message = (
        f"the answer of {url} is not from Toban: status {reply.status} with {kind} in place of JSON; "
        "check the address, and the proxy in front of the site"
    )
    busy = reply.status in (429, 502, 503, 504)
    return TobanError(_BY_STATUS[reply.status] if busy else ErrorCode.CONFIG_INVALID, message)
