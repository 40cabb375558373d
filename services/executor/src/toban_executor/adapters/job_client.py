"""The job's end of TOBAN_SOCKET, for the executor's own programs."""

from __future__ import annotations

import json
import select
import socket
from typing import Any, NamedTuple

from toban_domain.payload import PAYLOAD_LIMIT, canonical_json
from toban_executor.guard.clock import boottime, pause

_SECONDS = 30.0
_NO_SOCKET = "there is no TOBAN_SOCKET: the path of the executor's state directory is too long"


class RefusedError(Exception):
    """The guard did not take the result; the text says why."""


class Lease(NamedTuple):
    """`until` the executor's lease lasts at least, CLOCK_BOOTTIME; None for a job that continues without one. Whether the run is `cancelled`."""

    until: float | None
    cancelled: bool

    def is_over(self, now: float) -> bool:
        """Whether it has ended, as far as this answer knows."""
        return self.until is not None and self.until <= now


class JobClient:
    """One connection, made when it is first needed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._received = b""

    def output(self, value: Any) -> None:
        """Set the result of the run. Raises RefusedError."""
        size = len(canonical_json(value).encode())
        if size > PAYLOAD_LIMIT:
            raise RefusedError(f"the response cannot be the result: it has {size} bytes, the limit is {PAYLOAD_LIMIT}")
        response = self._ask({"op": "output", "value": value})
        if response is None:
            raise RefusedError(_NO_SOCKET)
        if not response["ok"]:
            raise RefusedError(f"the response cannot be the result: {response['error']}")

    def lease(self) -> Lease:
        """The lease of the executor. This request is no sign of life. Raises RefusedError."""
        # What is left counts from the question: the response, or this process, may have waited since the guard has looked.
        asked = boottime()
        response = self._ask({"op": "lease"})
        if response is None:
            raise RefusedError(_NO_SOCKET)
        if not response["ok"]:
            raise RefusedError(f"the executor does not give the lease: {response['error']}")
        left = response["lease_seconds"]
        return Lease(None if left is None else asked + left, response["cancelled"])

    def wait(self, seconds: float) -> bool:
        """Sleep; True as soon as the run is cancelled."""
        end = boottime() + seconds
        try:
            response = self._ask({"op": "cancelled"})
        except RefusedError:
            # A cancel reaches the program by SIGTERM, too.
            response = None
        if response is None or self._socket is None:
            pause(max(0.0, end - boottime()))
            return False
        if response["cancelled"]:
            return True
        return self.listen(end - boottime())

    def listen(self, seconds: float) -> bool:
        """Sleep, after a request; True as soon as the run is cancelled."""
        assert self._socket is not None
        # All that comes without a request is the cancel, or the end of the guard.
        return bool(self._received or select.select([self._socket], [], [], max(0.0, seconds))[0])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if not self._path:
            return None
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.settimeout(_SECONDS)
                self._socket.connect(self._path)
            self._socket.sendall(json.dumps(request, separators=(",", ":")).encode() + b"\n")
            while True:
                line = self._line()
                response: dict[str, Any] = json.loads(line)
                if "ok" in response:
                    return response
        except (OSError, ValueError) as error:
            raise RefusedError(f"the executor did not respond on TOBAN_SOCKET: {error}") from None

    def _line(self) -> bytes:
        assert self._socket is not None
        while b"\n" not in self._received:
            data = self._socket.recv(65536)
            if not data:
                raise OSError("the connection was closed")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line
