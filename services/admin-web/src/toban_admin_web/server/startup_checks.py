"""Configuration errors found before the fork, and the listening socket."""

from __future__ import annotations

import socket

from toban_admin_web.adapters.webhook_http import WebhookPoster
from toban_admin_web.config import AdminWebConfig
from toban_admin_web.decide.allowed_hosts import is_loopback
from toban_runtime.config_checks import ConfigError
from toban_transport.tls import TlsFiles

BACKLOG = 256
MAX_PORT = 65535


def check_config(config: AdminWebConfig) -> None:
    """Raises TobanError CONFIG_INVALID for a configuration that cannot work."""
    if not is_loopback(config.http_host) and not config.http_allow_remote:
        raise ConfigError(
            f"SCHEDULER_HTTP_HOST: {config.http_host!r} is not loopback and the site speaks plain HTTP; "
            "bind 127.0.0.1, or set SCHEDULER_HTTP_ALLOW_REMOTE=true behind a proxy with TLS"
        )
    if not (config.web_dir / "templates").is_dir():
        raise ConfigError(f"SCHEDULER_WEB_DIR: {config.web_dir} has no templates; name the folder web/ of this release")
    TlsFiles(config.tls_dir)
    WebhookPoster(allow=config.webhook_allow, ca_file=config.webhook_ca_file)
    last = config.admin_port_of(config.http_workers - 1)
    if last > MAX_PORT:
        raise ConfigError(
            f"SCHEDULER_ADMIN_PORT: the last of {config.http_workers} workers would have port {last}; "
            f"choose {MAX_PORT - config.http_workers + 1} or less"
        )
    for worker in range(config.http_workers):
        # The worker binds it again, where a failure would be a traceback only.
        _bind(config.admin_host, config.admin_port_of(worker), "SCHEDULER_ADMIN_PORT").close()


def listen(config: AdminWebConfig) -> socket.socket:
    """The listening socket of the site. Raises TobanError CONFIG_INVALID when the address is not available."""
    listener = _bind(config.http_host, config.http_port, "SCHEDULER_HTTP_PORT")
    listener.listen(BACKLOG)
    return listener


def _bind(host: str, port: int, variable: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]"), port))
    except OSError as error:
        bound.close()
        raise ConfigError(f"{variable}: cannot bind {host}:{port} ({error.strerror}); choose a free port") from None
    return bound
