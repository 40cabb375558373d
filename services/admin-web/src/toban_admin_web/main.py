"""Builds admin-web by hand, serves until asked to stop, and puts everything away in order."""

from __future__ import annotations

import json
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from toban_admin_web.config import AdminWebConfig
from toban_admin_web.decide.hosts import is_loopback
from toban_admin_web.decide.languages import LANGUAGES
from toban_admin_web.decide.messages import Messages
from toban_domain.errors import TobanError
from toban_observability.logs import get_logger, setup_logging
from toban_runtime.config import load
from toban_runtime.config_checks import ConfigError
from toban_transport.tls import TlsFiles

if TYPE_CHECKING:
    from toban_admin_web.server.running import Running

SERVICE = "admin-web"
HINT = "See what runs with `make status`, start it with `make up`"
BACKLOG = 256

_log = get_logger(__name__)


def run() -> int:
    """The process: its exit code."""
    config = load(AdminWebConfig)
    setup_logging(SERVICE, config.log_format, config.log_level)
    try:
        check(config)
        listener = _listen(config)
    except TobanError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    from toban_admin_web.server.process import GRACE_SECONDS, SiteProcess

    port = listener.getsockname()[1]
    _log.info("admin-web serves", host=config.http_host, port=port)
    if not is_loopback(config.http_host):
        _log.warning("the site can be reached from outside and asks nobody who they are", host=config.http_host)
    process = SiteProcess(
        # From here on it belongs to gunicorn, which closes it.
        listener=listener.detach(),
        threads=config.http_threads,
        build=partial(build, config, port),
        grace=GRACE_SECONDS,
    )
    process.run()
    return 0


def check(config: AdminWebConfig) -> None:
    """Everything that can be known to be wrong before the start. Raises TobanError CONFIG_INVALID."""
    if not is_loopback(config.http_host) and not config.http_allow_remote:
        raise ConfigError(
            f"SCHEDULER_HTTP_HOST: {config.http_host!r} is not loopback and this site asks nobody who they are; "
            "bind 127.0.0.1, or set SCHEDULER_HTTP_ALLOW_REMOTE=true behind a proxy that asks"
        )
    if not (config.web_dir / "templates").is_dir():
        raise ConfigError(f"SCHEDULER_WEB_DIR: {config.web_dir} has no templates; name the folder web/ of this release")
    TlsFiles(config.tls_dir)
    # Bound again by the worker, where a failure would only be a traceback.
    _bound(config.admin_host, config.admin_port, "SCHEDULER_ADMIN_PORT").close()


def messages(web_dir: Path) -> Messages:
    """The words of the pages."""
    return Messages(
        {
            language: json.loads((web_dir / "locales" / f"{language}.json").read_text(encoding="utf-8"))
            for language in LANGUAGES
        }
    )


def build(config: AdminWebConfig, http_port: int, stopping: threading.Event) -> Running:
    """The parts of the worker process."""
    from toban_admin_web.server.running import Running

    return Running(config=config, messages=messages(config.web_dir), http_port=http_port, hint=HINT, stopping=stopping)


def _listen(config: AdminWebConfig) -> socket.socket:
    bound = _bound(config.http_host, config.http_port, "SCHEDULER_HTTP_PORT")
    bound.listen(BACKLOG)
    return bound


def _bound(host: str, port: int, variable: str) -> socket.socket:
    """A socket at host:port. Raises CONFIG_INVALID when the address is taken or none of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), port))
    except OSError as error:
        bound.close()
        raise ConfigError(f"{variable}: cannot bind {host}:{port} ({error.strerror}); choose a free port") from None
    return bound
