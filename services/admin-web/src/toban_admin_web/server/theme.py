"""Theme and time zone of a page: the choice that ?theme= or ?zone= names, kept in a cookie of this browser."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from flask import Flask, g, make_response, redirect, request

from toban_admin_web.decide.api_rules import is_for_programs
from toban_admin_web.server import kept_choices
from toban_admin_web.server.template_helpers import page_path

THEMES = ("system", "light", "dark")
ZONES = ("local", "utc")
"""Of the times: that of the browser, which its script knows, or UTC."""
CHOICES = {"theme": THEMES, "zone": ZONES}
"""Parameter and cookie → values; the first is the one without a cookie."""
SEE_OTHER = 303


def install(app: Flask) -> None:
    """Answers a choice with the same page, and gives the templates of `app` what was chosen: "" for the first value."""

    def choose() -> Any:
        g.choices = {name: _kept(name) for name in CHOICES}
        chosen = {name: request.args[name] for name, values in CHOICES.items() if request.args.get(name) in values}
        if request.method != "GET" or not chosen or is_for_programs(request.path):
            return None
        query = [(name, value) for name, value in request.args.items(multi=True) if name not in chosen]
        response = make_response(redirect(page_path() + (f"?{urlencode(query)}" if query else ""), SEE_OTHER))
        for name, value in chosen.items():
            kept_choices.keep(response, name, "" if value == CHOICES[name][0] else value)
        return response

    app.before_request(choose)
    app.jinja_env.globals.update(CHOICES=CHOICES, choice_url=choice_url)
    app.context_processor(lambda: g.get("choices") or dict.fromkeys(CHOICES, ""))


def choice_url(name: str, value: str) -> str:
    """The URL that makes a choice and leads back to this page."""
    return f"{page_path()}?{urlencode({**request.args, name: value})}"


def _kept(name: str) -> str:
    value = kept_choices.kept(name)
    return value if value in CHOICES[name][1:] else ""
