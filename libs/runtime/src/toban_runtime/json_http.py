"""One request to an endpoint that answers with a JSON object, such as an OpenID provider: bounded in time, number and size, no redirect, no proxy."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from toban_domain.http_call import Request
from toban_runtime.http_connection import PinnedConnection, TlsContext, check_ca_file, send, tls_context

SECONDS = 5.0
"""From the name to the last byte of the response."""
AT_ONCE = 8
"""Requests of one client at a time, with those whose caller does not wait any more."""
MAX_BYTES = 256 * 1024
# Each has a part of the time to accept a connection, so that one remains for the response.
MAX_ADDRESSES = 2


class JsonHttpError(Exception):
    """No JSON object came; the text says from where, and why."""


@dataclass(frozen=True, slots=True)
class JsonResponse:
    """What the endpoint answered, whatever its status."""

    status: int
    body: Mapping[str, Any]


class JsonHttp:
    """Safe for threads. `ca_file` holds the authorities that certificates may have, None = those of the machine. Raises ValueError for a bad file."""

    def __init__(self, *, ca_file: Path | None = None, seconds: float = SECONDS, at_once: int = AT_ONCE) -> None:
        if ca_file is not None:
            check_ca_file(ca_file)
        self._ca_file = str(ca_file) if ca_file else ""
        self._seconds = seconds
        self._at_once = at_once
        self._free = threading.BoundedSemaphore(at_once)

    def send(self, request: Request, *, seconds: float | None = None) -> JsonResponse:
        """Within `seconds`, by default those of the client. Raises JsonHttpError, at once while too many requests wait for their response."""
        shown, seconds = request.target.shown, self._seconds if seconds is None else seconds
        if not self._free.acquire(blocking=False):
            raise JsonHttpError(f"{shown}: {self._at_once} requests wait for a response already")
        exchange = _Exchange(request, self, seconds)
        try:
            threading.Thread(target=self._run, args=(exchange,), name="json-http", daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise JsonHttpError(f"{shown}: {error}") from None
        return _parse(shown, *exchange.wait())

    def _run(self, exchange: _Exchange) -> None:
        try:
            exchange.run()
        finally:
            self._free.release()

    @cached_property
    def context(self) -> TlsContext:
        """What verifies certificates."""
        return tls_context(self._ca_file)


class _Exchange:
    """One request, in a thread of its own: what waits for the resolver or for a connection cannot be ended, so the caller leaves it when its time is
    over."""

    def __init__(self, request: Request, client: JsonHttp, seconds: float) -> None:
        self._request = request
        self._client = client
        self._seconds = seconds
        self._done = threading.Event()
        self._left = threading.Event()
        self._connection: PinnedConnection | None = None
        self._found: tuple[int, bytes] | None = None
        self._problem = ""

    def wait(self) -> tuple[int, bytes]:
        """Status and body. Raises JsonHttpError."""
        if not self._done.wait(self._seconds):
            self._left.set()
            if self._connection is not None:
                self._connection.abort()
            raise JsonHttpError(f"{self._request.target.shown}: no whole response within {self._seconds:g} s")
        if self._found is None:
            raise JsonHttpError(f"{self._request.target.shown}: {self._problem}")
        return self._found

    def run(self) -> None:
        """Sends the request, and keeps what came of it."""
        try:
            self._found = self._exchange()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._problem = str(error) or type(error).__name__
        except Exception as error:
            self._problem = type(error).__name__
            raise
        finally:
            self._done.set()

    def _exchange(self) -> tuple[int, bytes]:
        target = self._request.target
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        connection = PinnedConnection(
            target,
            addresses=list(dict.fromkeys(str(one[4][0]) for one in found))[:MAX_ADDRESSES],
            timeout=self._seconds,
            context=self._client.context if target.scheme == "https" else None,
            connect_seconds=self._seconds / (MAX_ADDRESSES + 1),
        )
        self._connection = connection
        try:
            if self._left.is_set():
                raise TimeoutError("its time is over")
            response = send(connection, self._request)
            return response.status, response.read(MAX_BYTES + 1)
        finally:
            with suppress(OSError):
                connection.close()


def _parse(shown: str, status: int, body: bytes) -> JsonResponse:
    if len(body) > MAX_BYTES:
        raise JsonHttpError(f"{shown}: the response is longer than {MAX_BYTES // 1024} KiB")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise JsonHttpError(f"{shown}: status {status} without a JSON object")
    return JsonResponse(status, found)
