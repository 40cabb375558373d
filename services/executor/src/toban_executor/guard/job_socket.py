"""The Unix socket on which the attempt of one slot speaks to its guard: bounded lines, connections and rate.

One listener serves a slot for the life of its supervisor, so that a job which never connects costs nothing. Who connects must be a process of this
slot's tree: jobs of other slots are turned away, and so is a process that has ended before it was looked at.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from toban_executor.decide.job_protocol import MAX_LINE, refusal

MAX_CONNECTIONS = 16
MAX_UNSENT = 256 * 1024
"""Bytes of answers that a job may leave unread before its connection is closed."""

RATE = 200.0
"""Requests a second of one slot, after a burst of as many; more wait in the job."""

_MAX_PATH = 107
_READ = 64 * 1024
_ACCEPTS_A_TURN = 16
_CREDENTIALS = struct.Struct("iII")


class Connection:
    """One connection of the job: lines in, lines out."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.unsent = bytearray()
        # What poll waits for; 0: not registered, since poll would answer at once for a connection that the job has closed.
        self.events = 0
        # The job reads no more; what it has sent before still counts.
        self.deaf = False

    def send(self, line: bytes) -> bool:
        """Send now, or keep for later; False when the job reads too little."""
        if not self.deaf:
            self.unsent += line
        return self.flush()

    def flush(self) -> bool:
        """Send what waits, as far as there is room."""
        try:
            while self.unsent:
                del self.unsent[: self.sock.send(self.unsent)]
        except (BlockingIOError, InterruptedError):
            return len(self.unsent) <= MAX_UNSENT
        except OSError:
            self.deaf = True
            self.unsent.clear()
        return True


class JobSocket:
    """The listener of a slot and its connections, registered with `poll`. `serve` gets each line of the attempt in the slot."""

    def __init__(self, *, path: Path, poll: select.poll, now: Callable[[], float], gid: int = 0) -> None:
        self.path = ""
        self._poll = poll
        self._now = now
        self._connections: dict[int, Connection] = {}
        self._tokens, self._counted_at = RATE, now()
        # When requests that wait for the rate are read on; infinite while none does.
        self.due = float("inf")
        self._listener = _listen(path, gid)
        if self._listener is not None:
            self.path = str(path)
            poll.register(self._listener.fileno(), select.POLLIN)

    def owns(self, fd: int) -> bool:
        """Whether an event of this descriptor is for `ready`."""
        return fd in self._connections or (self._listener is not None and fd == self._listener.fileno())

    def ready(self, fd: int, serve: Callable[[Connection, bytes], None] | None) -> None:
        """Accept, read or write. Without `serve` there is no attempt: who connects is turned away."""
        connection = self._connections.get(fd)
        if connection is None:
            self._accept(accepting=serve is not None)
        elif not connection.flush():
            self._close(connection)
        elif serve is not None:
            if connection.events & select.POLLIN:
                self._read(connection, serve)
            self._update(connection)

    def resume(self, serve: Callable[[Connection, bytes], None]) -> None:
        """The rate allows requests that waited."""
        self.due = float("inf")
        for connection in list(self._connections.values()):
            self._serve_lines(connection, serve)
            self._update(connection)

    def broadcast(self, line: bytes) -> None:
        """Send to every connection."""
        for connection in list(self._connections.values()):
            self.send(connection, line)

    def send(self, connection: Connection, line: bytes) -> None:
        """Send to one that may have closed meanwhile."""
        if self._connections.get(connection.sock.fileno()) is not connection:
            return
        if connection.send(line):
            self._update(connection)
        else:
            self._close(connection)

    def finish(self, serve: Callable[[Connection, bytes], None]) -> None:
        """The tree is empty: serve what was sent before, and close."""
        self._tokens, self.due = RATE, float("inf")
        for connection in list(self._connections.values()):
            # A job that sends faster than it is served has left at most what a socket buffer holds.
            while self._connections.get(connection.sock.fileno()) is connection and self._read(connection, serve):
                pass
            self._close(connection)

    def _accept(self, *, accepting: bool) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS_A_TURN):
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return
            if not accepting or len(self._connections) >= MAX_CONNECTIONS or not _is_of_tree(sock):
                sock.close()
                continue
            sock.setblocking(False)
            connection = self._connections[sock.fileno()] = Connection(sock)
            self._update(connection)

    def _read(self, connection: Connection, serve: Callable[[Connection, bytes], None]) -> bool:
        """One read; False when there is nothing more for now, or the connection was closed."""
        try:
            data = connection.sock.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return False
        connection.received += data
        self._serve_lines(connection, serve)
        return True

    def _serve_lines(self, connection: Connection, serve: Callable[[Connection, bytes], None]) -> None:
        received = connection.received
        while (end := received.find(b"\n")) >= 0 and self._take_token():
            line = bytes(received[:end])
            del received[: end + 1]
            if len(line) <= MAX_LINE:
                serve(connection, line)
            else:
                self._refuse_long(connection)
        if end < 0 and len(received) > MAX_LINE:
            self._refuse_long(connection)

    def _refuse_long(self, connection: Connection) -> None:
        self.send(connection, refusal(f"a request has at most {MAX_LINE} bytes", cancelled=False))
        self._close(connection)

    def _take_token(self) -> bool:
        now = self._now()
        self._tokens = min(RATE, self._tokens + (now - self._counted_at) * RATE)
        self._counted_at = now
        if self._tokens < 1:
            self.due = min(self.due, now + 0.1)
            return False
        self._tokens -= 1
        return True

    def _update(self, connection: Connection) -> None:
        """Read on unless requests wait for the rate; write on while answers wait."""
        fd = connection.sock.fileno()
        if self._connections.get(fd) is not connection:
            return
        waits = b"\n" in connection.received
        events = (0 if waits else select.POLLIN) | (select.POLLOUT if connection.unsent else 0)
        if events and events != connection.events:
            self._poll.register(fd, events)
        elif not events and connection.events:
            self._poll.unregister(fd)
        connection.events = events

    def _close(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        if self._connections.get(fd) is connection:
            del self._connections[fd]
            if connection.events:
                self._poll.unregister(fd)
            connection.sock.close()


def _listen(path: Path, gid: int) -> socket.socket | None:
    """None where no socket can be: the path is too long, or the disk refuses. Jobs then have their markers. With a `gid` that group connects."""
    if len(os.fsencode(path)) > _MAX_PATH:
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listener.bind(str(path))
        if gid:
            os.chown(path, -1, gid)
        path.chmod(0o660 if gid else 0o600)
        listener.listen(MAX_CONNECTIONS)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return None
    return listener


def _is_of_tree(sock: socket.socket) -> bool:
    """Whether the process that connected descends from this one."""
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, own = _CREDENTIALS.unpack(given)[0], os.getpid()
    while pid > 1 and pid != own:
        pid = _parent(pid)
    return bool(pid == own)


def _parent(pid: int) -> int:
    """0 when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (as short as the other reads of /proc)
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
