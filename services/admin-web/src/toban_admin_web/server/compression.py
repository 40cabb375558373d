"""gzip: static files compressed once at the start, pages and JSON as they are made.

An answer with a token of the session (`g.has_token`) is never compressed: a page repeats its query, so a stranger who sees lengths could
guess the token (BREACH).
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

from flask import Flask, Response, g, request

TYPES = frozenset({"text/html", "application/json"})
# Shorter answers gain nothing, bytes.
LEAST = 1024
# Of pages: the highest level takes three times as long for a few percent.
LEVEL = 5


def install(app: Flask) -> None:
    """Compresses answers of `app` for clients that take gzip."""
    static = _compressed(Path(str(app.static_folder)))

    def compress(response: Response) -> Response:
        if request.endpoint == "static":
            name = str((request.view_args or {}).get("filename", ""))
            return _with_body(response, static[name]) if name in static else response
        if response.mimetype not in TYPES or response.is_streamed or request.method == "POST" or "has_token" in g:
            return response
        body = response.get_data()
        return response if len(body) < LEAST else _with_body(response, gzip.compress(body, LEVEL, mtime=0))

    app.after_request(compress)


def _compressed(folder: Path) -> Mapping[str, bytes]:
    found = {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    return {name: gzip.compress(content, 9, mtime=0) for name, content in found.items() if len(content) >= LEAST}


def _with_body(response: Response, body: bytes) -> Response:
    response.vary.add("Accept-Encoding")
    if response.status_code != 200 or request.accept_encodings.quality("gzip") <= 0 or "Range" in request.headers:
        return response
    if close := getattr(response.response, "close", None):
        close()
    response.direct_passthrough = False
    response.set_data(body)
    response.content_encoding = "gzip"
    if etag := response.get_etag()[0]:
        # Both forms have it, so it names the content and not the bytes.
        response.set_etag(etag, weak=True)
    return response
