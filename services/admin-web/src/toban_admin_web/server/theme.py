"""The theme of a page: the choice that ?theme= names, kept in a cookie of this browser; else that of the system."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import Flask, g, make_response, redirect, request

from toban_admin_web.decide.api_rules import is_for_programs
from toban_admin_web.server import kept_choices
from toban_admin_web.server.template_helpers import page_path

THEMES = ("system", "light", "dark")
COOKIE = "theme"
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
        kept = kept_choices.kept(COOKIE)
        g.theme = kept if kept in THEMES[1:] else ""
        chosen = request.args.get("theme", "")
        if request.method != "GET" or chosen not in THEMES or is_for_programs(request.path):
            return None
        query = [(name, value) for name, value in request.args.items(multi=True) if name != "theme"]
        response = make_response(redirect(page_path() + (f"?{urlencode(query)}" if query else ""), SEE_OTHER))
        kept_choices.keep(response, COOKIE, "" if chosen == THEMES[0] else chosen)
        return response

    app.before_request(choose)
    app.jinja_env.globals.update(THEMES=THEMES, PAGE_KEYS=PAGE_KEYS, theme_url=theme_url)
    app.context_processor(lambda: {"theme": g.get("theme", "")})


def theme_url(theme: str) -> str:
    """The URL that chooses a theme and leads back to this page."""
    return f"{page_path()}?{urlencode({**request.args, 'theme': theme})}"
