"""The language of a request: ?lang= (kept in the links of the page), else Accept-Language."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response, g, request

from toban_admin_web.decide import languages


def install(app: Flask) -> None:
    """Sets g.language before each request of `app`, and hands a chosen one on to the links."""

    def choose() -> None:
        g.chosen = languages.asked(request.args.get("lang", ""))
        g.language = g.chosen or languages.negotiated(request.headers.get("Accept-Language", ""))

    def carry(endpoint: str, values: dict[str, Any]) -> None:
        if g.get("chosen") and endpoint != "static":
            values.setdefault("lang", g.chosen)

    def tell(answer: Response) -> Response:
        if request.endpoint != "static":
            answer.vary.add("Accept-Language")
            if answer.mimetype == "text/html":
                answer.content_language.add(g.get("language", languages.DEFAULT))
        return answer

    app.before_request(choose)
    app.url_defaults(carry)
    app.after_request(tell)


def current() -> str:
    """The language of this request."""
    return str(g.get("language", languages.DEFAULT))
