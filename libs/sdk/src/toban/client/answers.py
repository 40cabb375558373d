"""Answers of the site: JSON, or the problem document that becomes an exception."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from toban.errors import ConfigError, Mistake, TobanError, UnavailableError, error_kind

BUSY = frozenset({429, 502, 503, 504})
"""Statuses of a site or a proxy that has no room, restarts, or has no coordinator now."""


def read_json(status: int, headers: Mapping[str, str], body: bytes) -> Any:
    """The JSON of a success, {} of one without a body. Raises the TobanError of a problem, and ConfigError for an answer that is not from Toban.

    >>> read_json(200, {"content-type": "application/json"}, b'{"run_id": 7}')
    {'run_id': 7}
    >>> read_json(204, {}, b"")
    {}
    """
    if status in (204, 304):
        return {}
    if 300 <= status < 400:
        # Never followed: the token would go to another address.
        where = headers.get("location", "elsewhere")[:200]
        raise _foreign(status, f"the site sends requests on to {where}; use the address of the site itself")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        found = json.loads(body) if kind.endswith("json") else None
    except (ValueError, RecursionError):
        found = None
    if 200 <= status < 300 and found is not None:
        return found
    if not isinstance(found, dict) or not isinstance(found.get("detail"), str):
        message = (
            f"the answer is not from Toban: status {status} with {kind or 'no type'} in place of JSON; "
            "check the address, and the proxy in front of the site"
        )
        raise _foreign(status, message)
    raise problem_of(status, headers, found)


def problem_of(status: int, headers: Mapping[str, str], found: Mapping[str, Any]) -> TobanError:
    """The exception of a problem document (RFC 9457)."""
    code, error = error_kind(status, str(found.get("code", "")))
    context = found.get("context")
    return error(
        str(found["detail"]),
        code=code,
        status=status,
        mistakes=[
            Mistake(str(one.get("where", "")), str(one.get("message", "")))
            for one in found.get("errors") or ()
            if isinstance(one, dict)
        ],
        retry_after=retry_after_of(headers),
        request_id=str(found.get("request_id", "")),
        context=context if isinstance(context, dict) else None,
    )


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Seconds of the header Retry-After, a number or a date; None without it.

    >>> retry_after_of({"retry-after": "3"})
    3.0
    """
    given = headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(given[:9])
    until, now = _date(given), _date(headers.get("date", ""))
    # The clock of this machine may differ from that of the site.
    return max(0.0, (until - now).total_seconds()) if until and now else None


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return found if found.tzinfo is not None else None


def _foreign(status: int, message: str) -> TobanError:
    code, error = error_kind(status, "") if status in BUSY else ("CONFIG_INVALID", ConfigError)
    if status >= 500 and status not in BUSY:
        code, error = "UNAVAILABLE", UnavailableError
    foreign = error(message, code=code, status=status)
    foreign.is_foreign = True
    return foreign
