"""Security and cache headers: files of this site only, no inline script or style, no framing, no referrer."""

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
# URLs of static files contain their digest.
STATIC_CACHE = "public, max-age=31536000, immutable"


def install(app: Flask) -> None:
    """Sets HEADERS on every response of `app`; caches store static files for a year and pages never."""

    def set_headers(response: Response) -> Response:
        response.headers.update(HEADERS)
        versioned = request.endpoint == "static" and "v" in request.args and response.status_code in (200, 304)
        response.headers["Cache-Control"] = STATIC_CACHE if versioned else "no-store"
        return response

    app.after_request(set_headers)
