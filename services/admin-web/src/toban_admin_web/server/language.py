"""The language of a request: ?lang= (kept in the links of the page), else Accept-Language."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response, g, request

from toban_admin_web.decide import languages


def install(app: Flask) -> None:
    """Sets g.language before each request of `app`, and adds an explicit choice to the links."""

    def choose() -> None:
        g.requested_language = languages.requested(request.args.get("lang", ""))
        g.language = g.requested_language or languages.negotiate(request.headers.get("Accept-Language", ""))

    def add_to_url(endpoint: str, values: dict[str, Any]) -> None:
        if g.get("requested_language") and endpoint != "static":
            values.setdefault("lang", g.requested_language)

    def set_headers(response: Response) -> Response:
        if request.endpoint != "static":
            response.vary.add("Accept-Language")
            if response.mimetype == "text/html":
                response.content_language.add(g.get("language", languages.DEFAULT))
        return response

    app.before_request(choose)
    app.url_defaults(add_to_url)
    app.after_request(set_headers)


def current() -> str:
    """The language of this request."""
    return str(g.get("language", languages.DEFAULT))
