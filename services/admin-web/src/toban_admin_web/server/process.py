"""gunicorn as this service uses it: one worker process with threads, whose parent starts it again should it ever end.

gRPC must not be forked: the parent never imports it, the worker builds everything after the fork.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol, cast

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.util import close_graceful
from gunicorn.workers.gthread import ThreadWorker

from toban_admin_web.server.patience import PatientSocket

# Requests under way get this long to end, seconds; live logs are ended at once.
GRACE_SECONDS = 5
KEEPALIVE_SECONDS = 15
CONNECTIONS_PER_THREAD = 8
# How long a closed connection is read from, so that its client gets the end of the answer.
LINGER_SECONDS = 0.5


class Running(Protocol):
    """What the worker runs: the application, and what is beside it."""

    app: Flask

    def start(self, parent_pid: int) -> None:
        """Called when the worker serves."""

    def stop(self) -> None:
        """Called when the worker has ended its requests."""


class OurLog(Logger):
    """gunicorn's words through our own logs; each request is counted and not logged."""

    def setup(self, cfg: Any) -> None:
        """No handlers of its own."""
        self.cfg = cfg
        self._access_log_enabled = False
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)


class Worker(ThreadWorker):
    """Ends live logs when it is asked to stop, so that it need not wait for them; a slow client holds a thread for a bounded time."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM: as the base class, after the word to those who wait."""
        cast(SiteProcess, self.app).stopping.set()
        super().handle_exit(sig, frame)

    def enqueue_req(self, conn: Any) -> None:
        """A connection that has something to say: from here on it bounds how long that may take."""
        if not isinstance(conn.sock, PatientSocket):
            conn.sock = PatientSocket.of(conn.sock)
        super().enqueue_req(conn)

    def handle(self, conn: Any) -> Any:
        """One request, in a thread. Its connection is closed here too: the main thread, which accepts, must wait for nobody."""
        conn.sock.begin()
        try:
            result = super().handle(conn)
        finally:
            conn.sock.end()
        if result is False:
            close_graceful(conn.sock, timeout=LINGER_SECONDS)
        return result


class SiteProcess(BaseApplication):
    """Serves on `listener` (the descriptor of a bound socket) until SIGTERM or SIGINT. `build` is called once in each worker."""

    def __init__(self, *, listener: int, threads: int, build: Callable[[threading.Event], Running], grace: int) -> None:
        self.stopping = threading.Event()
        self._listener = listener
        self._threads = threads
        self._build = build
        self._grace = grace
        self._running: Running | None = None
        super().__init__()

    def load_config(self) -> None:
        """The settings of gunicorn that differ from its defaults."""
        settings: dict[str, Any] = {
            "bind": f"fd://{self._listener}",
            "workers": 1,
            "threads": self._threads,
            "worker_class": Worker,
            "worker_connections": self._threads * CONNECTIONS_PER_THREAD,
            "logger_class": OurLog,
            "graceful_timeout": self._grace,
            "keepalive": KEEPALIVE_SECONDS,
            "control_socket_disable": True,
            # Nothing that a client says about itself is believed.
            "forwarded_allow_ips": "",
            "post_worker_init": self._started,
            "worker_exit": self._ended,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Builds the parts, in the worker."""
        self._running = self._build(self.stopping)
        return self._running.app

    def _started(self, worker: Any) -> None:
        if self._running is not None:
            self._running.start(worker.ppid)

    def _ended(self, _arbiter: Any, _worker: Any) -> None:
        if self._running is not None:
            self._running.stop()
