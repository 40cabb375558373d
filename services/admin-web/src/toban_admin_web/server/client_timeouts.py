"""Connections with time limits, so that a slow client cannot occupy a thread."""

from __future__ import annotations

import errno
import socket
from typing import Any

from toban_runtime.clock import SystemClock

# Time limit for the arrival of a whole request, and for each write of a response, seconds.
CLIENT_SECONDS = 10.0
_clock = SystemClock()


class DeadlineSocket(socket.socket):
    """An accepted connection. A timeout raises the same error as a client that disconnected, which gunicorn does not log."""

    _seconds = CLIENT_SECONDS
    _ends_at: float | None = None

    @classmethod
    def wrap(cls, accepted: socket.socket, seconds: float = CLIENT_SECONDS) -> DeadlineSocket:
        """Takes over the connection of `accepted`, which cannot be used afterwards."""
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        wrapped = cls(family, kind, proto, fileno=accepted.detach())
        wrapped._seconds = seconds
        return wrapped

    def start_request(self) -> None:
        """Starts the time limit of a request."""
        self._ends_at = _clock.monotonic() + self._seconds

    def finish_request(self) -> None:
        """Ends the time limit: later reads follow the socket's own timeout."""
        self._ends_at = None

    def recv(self, *args: Any) -> bytes:
        """As socket.recv. Raises ConnectionResetError after the time limit of the request."""
        if self._ends_at is None:
            return super().recv(*args)
        remaining = self._ends_at - _clock.monotonic()
        try:
            # A client that sends byte by byte never blocks recv, so the deadline is checked first.
            if remaining <= 0:
                raise TimeoutError
            self.settimeout(remaining)
            return super().recv(*args)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "the request did not arrive in time") from None

    def sendall(self, *args: Any) -> None:
        """As socket.sendall. Raises BrokenPipeError when the client does not read in time."""
        self.settimeout(self._seconds)
        try:
            super().sendall(*args)
        except TimeoutError:
            raise BrokenPipeError(errno.EPIPE, "the client does not read the response") from None

    def setblocking(self, flag: bool) -> None:
        """As socket.setblocking, but valid on a closed socket."""
        if self.fileno() >= 0:
            super().setblocking(flag)
