"""The theme of a page: the choice that ?theme= names, kept in a cookie of this browser; else that of the system."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import Flask, Response, g, make_response, redirect, request

from toban_admin_web.decide.api_rules import is_for_programs
from toban_admin_web.decide.browser_safety import cookie_name, is_plain
from toban_admin_web.server.template_helpers import page_path

THEMES = ("system", "light", "dark")
COOKIE = "theme"
COOKIE_SECONDS = 365 * 86400
SEE_OTHER = 303
# Letters after g that open a page.
PAGE_KEYS = {
    "dashboard.show": "d",
    "runs.listed": "r",
    "jobs.listed": "j",
    "schedules.listed": "s",
    "executors.show": "e",
    "limits.listed": "l",
    "cluster.show": "c",
    "settings.listed": "t",
    "audit.listed": "a",
}


def install(app: Flask) -> None:
    """Answers a choice with the same page, and gives the templates of `app` the theme."""

    def choose() -> Any:
        kept = request.cookies.get(_cookie(), "")
        g.theme = kept if kept in THEMES[1:] else ""
        chosen = request.args.get("theme", "")
        if request.method != "GET" or chosen not in THEMES or is_for_programs(request.path):
            return None
        query = [(name, value) for name, value in request.args.items(multi=True) if name != "theme"]
        return _keep(
            make_response(redirect(page_path() + (f"?{urlencode(query)}" if query else ""), SEE_OTHER)), chosen
        )

    app.before_request(choose)
    app.jinja_env.globals.update(THEMES=THEMES, PAGE_KEYS=PAGE_KEYS, theme_url=theme_url)
    app.context_processor(lambda: {"theme": g.get("theme", "")})


def theme_url(theme: str) -> str:
    """The URL that chooses a theme and leads back to this page."""
    return f"{page_path()}?{urlencode({**request.args, 'theme': theme})}"


def _keep(response: Response, theme: str) -> Response:
    host = str(request.environ.get("HTTP_HOST", ""))
    seconds = 0 if theme == THEMES[0] else COOKIE_SECONDS
    secure = not is_plain(host)
    response.set_cookie(_cookie(), theme, max_age=seconds, path="/", secure=secure, httponly=True, samesite="Lax")
    return response


def _cookie() -> str:
    return cookie_name(COOKIE, str(request.environ.get("HTTP_HOST", "")))
