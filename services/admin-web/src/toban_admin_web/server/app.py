"""The Flask application without its views: languages, templates, headers, errors, hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from flask import Flask, Response, abort, g, request
from jinja2 import StrictUndefined
from werkzeug.routing import IntegerConverter, Map

from toban_admin_web.decide.allowed_hosts import is_allowed
from toban_admin_web.decide.api_rules import is_for_programs
from toban_admin_web.decide.languages import LANGUAGES
from toban_admin_web.decide.service_texts import ServiceTexts
from toban_admin_web.decide.translations import Translations
from toban_admin_web.server import api_problems, compression, errors, language, request_metrics, template_helpers, theme
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource

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
    "Referrer-Policy": "same-origin",
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


MAX_REQUEST_BYTES = 64 * 1024
READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MISDIRECTED = 421


class IdConverter(IntegerConverter):
    """A run's number in a path; a number that exceeds 63 bits gives 404."""

    regex = "[0-9]{1,19}"

    def __init__(self, rules: Map) -> None:
        super().__init__(rules, max=(1 << 63) - 1)


def create_app(*, web_dir: Path, clock: Clock, ids: IdSource, http_names: Sequence[str]) -> Flask:
    """The application with the templates, static files and texts in `web_dir`; `http_names` are further allowed hosts."""
    app = Flask(__name__, static_folder=str(web_dir / "static"), template_folder=str(web_dir / "templates"))
    app.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    app.url_map.converters["id"] = IdConverter
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    # after_request runs in reverse order: compression, metrics and headers see every response, errors included.
    compression.install(app)
    request_metrics.install_metrics(app, clock)
    request_metrics.install_tracing(app)
    install(app)
    language.install(app)
    theme.install(app)
    template_helpers.install(app, load_translations(web_dir), load_service_texts(web_dir), clock)
    errors.install(app, ids)
    api_problems.install(app, ids)
    app.before_request(lambda: _reject_invalid(http_names))
    return app


def load_translations(web_dir: Path) -> Translations:
    """The catalogues in locales/."""
    return Translations(
        {
            language: json.loads((web_dir / "locales" / f"{language}.json").read_text(encoding="utf-8"))
            for language in LANGUAGES
        }
    )


def load_service_texts(web_dir: Path) -> ServiceTexts:
    """What the services say in English, in the other languages."""
    return ServiceTexts(json.loads((web_dir / "locales" / "services.json").read_text(encoding="utf-8")))


def _reject_invalid(http_names: Sequence[str]) -> Response | None:
    """Rejects unknown host names, methods that write where no view takes them, and NUL characters, which no name contains."""
    if not is_allowed(request.environ.get("HTTP_HOST", ""), http_names):
        g.problem = "host"
        abort(MISDIRECTED)
    if (
        request.method not in READ_METHODS
        and request.routing_exception is not None
        and not is_for_programs(request.path)
    ):
        abort(405)
    if "\0" in request.path or any("\0" in text for pair in request.args.items(multi=True) for text in pair):
        where = "path" if "\0" in request.path else "query"
        abort(400, f"{where}: has a NUL character (%00), which no name and no text contains; leave it out")
    return None
