"""The language of a request: ?lang= (kept in the links of the page and in a cookie), else that of the cookie, else Accept-Language."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response, g, request

from toban_admin_web.decide import languages
from toban_admin_web.decide.api_rules import is_for_programs
from toban_admin_web.server import kept_choices

COOKIE = "language"


def install(app: Flask) -> None:
    """Sets g.language before each request of `app`, and adds an explicit choice to the links."""

    def choose() -> None:
        g.requested_language = languages.requested(request.args.get("lang", ""))
        g.kept_language = languages.requested(kept_choices.kept(COOKIE))
        g.language = (
            g.requested_language or g.kept_language or languages.negotiate(request.headers.get("Accept-Language", ""))
        )

    def add_to_url(endpoint: str, values: dict[str, Any]) -> None:
        if g.get("requested_language") and endpoint != "static":
            values.setdefault("lang", g.requested_language)

    def set_headers(response: Response) -> Response:
        if request.endpoint != "static":
            response.vary.update(("Accept-Language", "Cookie"))
            if response.mimetype == "text/html":
                response.content_language.add(g.get("language", languages.DEFAULT))
            requested = g.get("requested_language", "")
            if requested and requested != g.kept_language and not is_for_programs(request.path):
                kept_choices.keep(response, COOKIE, requested)
        return response

    app.before_request(choose)
    app.url_defaults(add_to_url)
    app.after_request(set_headers)


def current() -> str:
    """The language of this request."""
    return str(g.get("language", languages.DEFAULT))
