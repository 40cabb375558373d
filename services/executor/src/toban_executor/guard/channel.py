"""The keeper's end of its socket: never blocks, keeps what the executor has not on disk yet, and says when to stop reading jobs."""

import contextlib
import socket
from collections import deque
from pathlib import Path

from toban_executor.guard import left
from toban_executor.guard.left import Said

_HIGH = 256 * 1024
"""Bytes waiting for the executor above which the job's pipes are left alone: the job then waits in its write."""

_MOST_LEFT = 32 << 20
"""Bytes that are kept for the next incarnation above which jobs that are being ended are not read on."""


class Channel:
    """Ordered messages to the executor with a bounded queue behind the socket's own buffer.

    They are numbered after `number`, and kept until the executor has said that it has them on disk; `left_file` gets those that an executor which
    has died had not.
    """

    def __init__(self, sock: socket.socket, *, left_file: Path, number: int = 0) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._queue: deque[bytes] = deque()
        self._waiting = 0
        self._number = number
        self._left_file = left_file
        self._kept: deque[Said] = deque()
        self._kept_bytes = 0
        self.closed = False

    def fileno(self) -> int:
        """For poll."""
        return self._sock.fileno()

    @property
    def congested(self) -> bool:
        """True while the executor does not keep up, or when it has gone and left too much."""
        return self._waiting > _HIGH or (self.closed and self._kept_bytes > _MOST_LEFT)

    @property
    def wants_write(self) -> bool:
        """True while messages wait for room in the socket."""
        return bool(self._queue) and not self.closed

    def stored(self, number: int) -> None:
        """The executor has the messages up to this one on disk."""
        while self._kept and self._kept[0].number <= number:
            self._kept_bytes -= len(self._kept.popleft().data)

    def leave(self) -> None:
        """The executor has gone: what it had not on disk is for its next incarnation."""
        if self._kept:
            # A disk that refuses loses it, as it would have lost what the executor writes.
            with contextlib.suppress(OSError):
                left.write(self._left_file, self._kept)

    def send(self, data: bytes, *, ticket: str = "") -> None:
        """Send `data` now or as soon as there is room; only kept when the executor has gone, with the `ticket` of the attempt that it ends."""
        self._number += 1
        self._kept.append(Said(self._number, data, ticket))
        self._kept_bytes += len(data)
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
