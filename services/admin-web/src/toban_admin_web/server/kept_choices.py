"""Choices of a person that cookies of the browser keep for a year: theme, time zone and language. The pages before the sign-in have them too."""

from __future__ import annotations

from flask import Response, request

from toban_admin_web.decide.browser_safety import cookie_name, is_plain

COOKIE_SECONDS = 365 * 86400


def kept(kind: str) -> str:
    """What this browser keeps, as it sent it: any text; "" without a choice."""
    return request.cookies.get(_cookie(kind), "")


def keep(response: Response, kind: str, value: str) -> None:
    """Keeps `value`; an empty one ends the choice."""
    response.set_cookie(
        _cookie(kind),
        value,
        max_age=COOKIE_SECONDS if value else 0,
        path="/",
        secure=not is_plain(_host()),
        httponly=True,
        samesite="Lax",
    )


def _cookie(kind: str) -> str:
    return cookie_name(kind, _host())


def _host() -> str:
    return str(request.environ.get("HTTP_HOST", ""))
