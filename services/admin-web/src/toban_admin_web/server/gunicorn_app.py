"""gunicorn for this service: a parent that never imports gRPC, which must not be forked, and workers with threads.

The parent restarts a worker when it ends. docs/adr/0021-site-view-models-and-gunicorn.md explains the subclasses.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any, Protocol, cast

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.util import close_graceful
from gunicorn.workers.gthread import ThreadWorker

from toban_admin_web.server.client_timeouts import DeadlineSocket

# Time for open requests to finish at a stop, seconds; live logs end at once.
GRACE_SECONDS = 5
KEEPALIVE_SECONDS = 15
CONNECTIONS_PER_THREAD = 8
# How long the rest of a request is read after a close, seconds, so that the client receives the whole response.
LINGER_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1


class Site(Protocol):
    """The content of the worker process."""

    app: Flask

    def start(self, parent_pid: int) -> None:
        """Called when the worker serves."""

    def stop(self) -> None:
        """Called when the worker has finished its requests."""


class GunicornLogger(Logger):
    """Sends gunicorn's warnings to this service's logs; requests are counted by metrics, not logged."""

    def setup(self, cfg: Any) -> None:
        """No handlers of its own."""
        self.cfg = cfg
        self._access_log_enabled = False
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)


class TimeoutThreadWorker(ThreadWorker):
    """Ends live logs at SIGTERM, and limits how long a slow client occupies a thread."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM: ends the live logs, then as the base class."""
        cast(GunicornApp, self.app).stopping.set()
        super().handle_exit(sig, frame)

    def enqueue_req(self, conn: Any) -> None:
        """A connection with data to read: its socket gets time limits."""
        if not isinstance(conn.sock, DeadlineSocket):
            conn.sock = DeadlineSocket.wrap(conn.sock)
        super().enqueue_req(conn)

    def handle(self, conn: Any) -> Any:
        """One request, in a thread. It also closes the connection, so that the accepting main thread never blocks."""
        conn.sock.start_request()
        try:
            result = super().handle(conn)
        finally:
            conn.sock.finish_request()
        if result is False:
            close_graceful(conn.sock, timeout=LINGER_SECONDS)
        return result


class GunicornApp(BaseApplication):
    """Serves on `listener` (the descriptor of a bound socket) until SIGTERM or SIGINT.

    `build_site` runs once in each worker, with its number: from 0 on, and the one that replaces another has the same.
    """

    def __init__(
        self, *, listener: int, workers: int, threads: int, build_site: Callable[[threading.Event, int], Site]
    ) -> None:
        self.stopping = threading.Event()
        self._listener = listener
        self._workers = workers
        self._threads = threads
        self._number = 0
        self._build_site = build_site
        self._site: Site | None = None
        super().__init__()

    def load_config(self) -> None:
        """Settings that differ from gunicorn's defaults."""
        settings: dict[str, Any] = {
            "bind": f"fd://{self._listener}",
            "workers": self._workers,
            "threads": self._threads,
            "worker_class": TimeoutThreadWorker,
            "worker_connections": self._threads * CONNECTIONS_PER_THREAD,
            "logger_class": GunicornLogger,
            "graceful_timeout": GRACE_SECONDS,
            "keepalive": KEEPALIVE_SECONDS,
            "control_socket_disable": True,
            # X-Forwarded-* headers are never trusted.
            "forwarded_allow_ips": "",
            "pre_fork": self._choose_number,
            "post_fork": end_with_parent,
            "post_worker_init": self._start_site,
            "worker_exit": self._stop_site,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Builds the site, in the worker."""
        self._site = self._build_site(self.stopping, self._number)
        return self._site.app

    def _choose_number(self, arbiter: Any, worker: Any) -> None:
        """The lowest that no living worker has, in the parent; the fork takes it along."""
        taken = {one.number for one in arbiter.WORKERS.values()}
        worker.number = self._number = next(number for number in count() if number not in taken)

    def _start_site(self, worker: Any) -> None:
        if self._site is not None:
            self._site.start(worker.ppid)

    def _stop_site(self, _arbiter: Any, _worker: Any) -> None:
        if self._site is not None:
            self._site.stop()


def end_with_parent(_arbiter: Any, worker: Any) -> None:
    """In the worker: the kernel kills it as soon as its parent is gone, so that no orphan holds the ports of the next start.

    Raises OSError when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != worker.ppid:
        # The parent ended before the kernel was asked.
        os._exit(0)
