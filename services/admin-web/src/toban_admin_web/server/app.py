"""The Flask application: views, languages, headers, errors. Read-only: it answers GET and HEAD."""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response, abort, g, request
from jinja2 import StrictUndefined
from werkzeug.routing import IntegerConverter, Map

from toban_admin_web.decide import hosts
from toban_admin_web.server import counting, errors, headers, language, traces, words
from toban_admin_web.views import cluster, executors, jobs, log, runs, schedules
from toban_admin_web.views.site import EXTENSION, Site

MAX_REQUEST_BYTES = 64 * 1024
READ_ONLY = frozenset({"GET", "HEAD", "OPTIONS"})
MISDIRECTED = 421


class IdConverter(IntegerConverter):
    """The number of a run in an address; one that no run can have is an address that is not there."""

    regex = "[0-9]{1,19}"

    def __init__(self, rules: Map) -> None:
        super().__init__(rules, max=(1 << 63) - 1)


def create_app(site: Site, web_dir: Path) -> Flask:
    """The application over `site`, with the templates, files and words in `web_dir`."""
    app = Flask(__name__, static_folder=str(web_dir / "static"), template_folder=str(web_dir / "templates"))
    app.config["MAX_CONTENT_LENGTH"] = MAX_REQUEST_BYTES
    app.extensions[EXTENSION] = site
    app.url_map.converters["id"] = IdConverter
    app.jinja_env.undefined = StrictUndefined
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    # First in, last out: what counts and what sets headers sees every answer, errors included.
    counting.install(app, site.clock)
    traces.install(app)
    headers.install(app)
    language.install(app)
    words.install(app, site.messages, site.clock)
    errors.install(app)
    app.before_request(lambda: _refuse(site))
    for module in (cluster, executors, jobs, log, runs, schedules):
        app.register_blueprint(module.views)
    return app


def _refuse(site: Site) -> Response | None:
    """Other names than ours, anything that would change something, and what nothing can be called."""
    if not hosts.allowed(request.environ.get("HTTP_HOST", ""), site.names):
        g.problem = "host"
        abort(MISDIRECTED)
    if request.method not in READ_ONLY:
        abort(405)
    if "\0" in request.path or any("\0" in value for value in request.args.values()):
        abort(400)
    return None
