"""The headers of every answer: only our own files, no inline script or style, nothing embedded, nothing told to others."""

from __future__ import annotations

from flask import Flask, Response, request

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# Files carry their digest in the address.
STATIC_CACHE = "public, max-age=31536000, immutable"


def install(app: Flask) -> None:
    """Sets HEADERS on every answer of `app`; pages are never kept by a cache, files for long."""

    def secure(answer: Response) -> Response:
        answer.headers.update(HEADERS)
        versioned = request.endpoint == "static" and "v" in request.args and answer.status_code in (200, 304)
        answer.headers["Cache-Control"] = STATIC_CACHE if versioned else "no-store"
        return answer

    app.after_request(secure)
