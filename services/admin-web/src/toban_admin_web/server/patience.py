"""Connections that bound how long a client may hold a thread by being slow."""

from __future__ import annotations

import errno
import socket
from typing import Any

from toban_runtime.clock import SystemClock

# A request has to arrive whole within this time, and one piece of an answer has to be taken within it, seconds.
CLIENT_SECONDS = 10.0
_clock = SystemClock()


class PatientSocket(socket.socket):
    """An accepted connection. What takes too long ends like a client that has left, which gunicorn passes over in silence."""

    _seconds = CLIENT_SECONDS
    _ends_at: float | None = None

    @classmethod
    def of(cls, accepted: socket.socket, seconds: float = CLIENT_SECONDS) -> PatientSocket:
        """Takes the connection of `accepted`, which is of no use any more."""
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        patient = cls(family, kind, proto, fileno=accepted.detach())
        patient._seconds = seconds
        return patient

    def begin(self) -> None:
        """A request is read from now on."""
        self._ends_at = _clock.monotonic() + self._seconds

    def end(self) -> None:
        """The request is answered; what is read from now on has its own bounds."""
        self._ends_at = None

    def recv(self, *given: Any) -> bytes:
        """As socket.recv. Raises ConnectionResetError when the time of the request is over."""
        if self._ends_at is None:
            return super().recv(*given)
        left = self._ends_at - _clock.monotonic()
        try:
            # What comes drop by drop is always there when it is asked for: the end is looked at first.
            if left <= 0:
                raise TimeoutError
            self.settimeout(left)
            return super().recv(*given)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "the request did not arrive in time") from None

    def sendall(self, *given: Any) -> None:
        """As socket.sendall. Raises BrokenPipeError when the client does not take it in time."""
        self.settimeout(self._seconds)
        try:
            super().sendall(*given)
        except TimeoutError:
            raise BrokenPipeError(errno.EPIPE, "the client takes nothing") from None

    def setblocking(self, flag: bool) -> None:
        """As socket.setblocking; nothing to do when closed."""
        if self.fileno() >= 0:
            super().setblocking(flag)
