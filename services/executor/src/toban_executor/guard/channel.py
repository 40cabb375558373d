"""The keeper's end of its socket: never blocks, keeps what the executor does not take yet, and says when to stop reading jobs."""

import socket
from collections import deque

_HIGH = 256 * 1024
"""Bytes waiting for the executor above which the job's pipes are left alone: the job then waits in its write."""


class Channel:
    """Ordered messages to the executor with a bounded queue behind the socket's own buffer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._queue: deque[bytes] = deque()
        self._waiting = 0
        self.closed = False

    def fileno(self) -> int:
        """For poll."""
        return self._sock.fileno()

    @property
    def congested(self) -> bool:
        """True while the executor does not keep up."""
        return self._waiting > _HIGH

    @property
    def wants_write(self) -> bool:
        """True while messages wait for room in the socket."""
        return bool(self._queue) and not self.closed

    def send(self, data: bytes) -> None:
        """Send `data` now or as soon as there is room; dropped when the executor has gone."""
        if self._queue or not self._try(data):
            self._queue.append(data)
            self._waiting += len(data)

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        while self._queue and self._try(self._queue[0]):
            self._waiting -= len(self._queue.popleft())

    def receive(self) -> bytes | None:
        """The next message; b"" when the executor has closed its end, None when nothing is there."""
        try:
            data = self._sock.recv(1 << 19)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        self.closed = self.closed or not data
        return data

    def _try(self, data: bytes) -> bool:
        if self.closed:
            return True
        try:
            self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self.closed = True
        return True
