"""The parent process of admin-web: settings, logs, checks, then gunicorn. It must not import gRPC (server/gunicorn_app.py)."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

from toban_admin_web.config import AdminWebConfig
from toban_admin_web.decide.allowed_hosts import is_loopback
from toban_admin_web.server.gunicorn_app import GunicornApp
from toban_admin_web.server.startup_checks import check_config, listen
from toban_domain.errors import TobanError
from toban_observability.logs import get_logger, setup_logging
from toban_runtime.config import load
from toban_runtime.open_files import raise_open_files

if TYPE_CHECKING:
    from toban_admin_web.main.worker import SiteWorker

SERVICE = "admin-web"

_log = get_logger(__name__)


def run() -> int:
    """Runs admin-web until it is stopped; the exit code of the process."""
    config = load(AdminWebConfig)
    setup_logging(SERVICE, config.log_format, config.log_level)
    raise_open_files()
    try:
        check_config(config)
        listener = listen(config)
    except TobanError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    port = listener.getsockname()[1]
    _log.info("admin-web serves", host=config.http_host, port=port)
    if not is_loopback(config.http_host):
        _log.warning(
            "the site is reachable by plain HTTP; people can sign in through a proxy with TLS only",
            host=config.http_host,
        )
    # gunicorn owns and closes the descriptor.
    app = GunicornApp(
        listener=listener.detach(),
        workers=config.http_workers,
        threads=config.http_threads,
        build_site=partial(_build_worker, config, port),
    )
    app.run()
    return 0


def _build_worker(config: AdminWebConfig, http_port: int, stopping: threading.Event, number: int) -> SiteWorker:
    from toban_admin_web.main.worker import SiteWorker

    return SiteWorker(config=config, http_port=http_port, stopping=stopping, number=number)
