"""The socket of a slot supervisor to its executor: never blocks, keeps what the executor has not on disk yet, and shows when to stop reading jobs."""

import contextlib
import socket
from collections import deque
from pathlib import Path

from toban_executor.decide.guard_types import JobNote
from toban_executor.decide.warm import WarmNote
from toban_executor.guard import message_spool
from toban_executor.guard.message_spool import SpooledMessage
from toban_executor.guard.protocol import ReceiveBuffer, encode_report

_HIGH = 256 * 1024
"""Bytes waiting for the executor above which the job's pipes are left alone: the job then waits in its write."""

_MOST_SPOOLED = 32 << 20
"""Bytes that are kept for the next incarnation above which jobs that are being ended are not read on."""


class Channel:
    """Ordered messages to the executor with a bounded queue behind the socket's own buffer.

    They are numbered after `number` and kept until the executor acknowledges that they are on its disk; `spool_file` gets the others.
    """

    def __init__(self, sock: socket.socket, *, spool_file: Path, number: int = 0) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._receive_buffer = ReceiveBuffer()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._number = number
        self._spool_file = spool_file
        self._unacked: deque[SpooledMessage] = deque()
        self._unacked_bytes = 0
        self.closed = False

    def fileno(self) -> int:
        """For poll."""
        return self._sock.fileno()

    @property
    def congested(self) -> bool:
        """True while the executor does not keep up, or when it has ended and too much is unacknowledged."""
        return self._queued_bytes > _HIGH or (self.closed and self._unacked_bytes > _MOST_SPOOLED)

    @property
    def wants_write(self) -> bool:
        """True while messages wait for room in the socket."""
        return bool(self._queue) and not self.closed

    def drop_acked(self, number: int) -> None:
        """The executor has the messages up to this one on disk."""
        while self._unacked and self._unacked[0].number <= number:
            self._unacked_bytes -= len(self._unacked.popleft().data)

    def spool(self) -> None:
        """The executor has ended: what it had not on disk is for its next incarnation."""
        if self._unacked:
            # A disk that refuses loses it, as it would have lost what the executor writes.
            with contextlib.suppress(OSError):
                message_spool.write(self._spool_file, self._unacked)

    def send(self, data: bytes, *, ticket: bytes = b"") -> None:
        """Send `data` now or as soon as there is room; only kept when the executor has ended.

        `ticket` is the log ticket of the attempt that the message ends.
        """
        self._number += 1
        self._unacked.append(SpooledMessage(self._number, data, ticket))
        self._unacked_bytes += len(data)
        self.send_unnumbered(data)

    def send_unnumbered(self, data: bytes) -> None:
        """As `send`, for what only the executor that runs now needs: it is not kept."""
        if self._queue or not self._try(data):
            self._queue.append(data)
            self._queued_bytes += len(data)

    def send_note(self, note: JobNote | WarmNote) -> None:
        """As `send_unnumbered`, but progress and steps are left out while the executor does not keep up: a later note replaces them.

        A checkpoint is waited for, one at a time, and what a note of zygotes counts is in no other one.
        """
        if isinstance(note, WarmNote) or note.kind == "checkpoint" or not self.congested:
            self.send_unnumbered(encode_report(note))

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        while self._queue and self._try(self._queue[0]):
            self._queued_bytes -= len(self._queue.popleft())

    def receive(self) -> bytes | None:
        """The next message; b"" when the executor has closed its end, None when nothing is there."""
        try:
            data = self._receive_buffer.receive(self._sock)
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
