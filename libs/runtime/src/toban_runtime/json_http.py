"""One request to an endpoint that answers with a JSON object, such as an OpenID provider: bounded in time and size, no redirect, no proxy."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from toban_domain.http_call import Request
from toban_runtime.http_connection import PinnedConnection, TlsContext, check_ca_file, send, tls_context

SECONDS = 5.0
MAX_BYTES = 256 * 1024
# Each may take the time of a connection.
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

    def __init__(self, *, ca_file: Path | None = None, seconds: float = SECONDS) -> None:
        if ca_file is not None:
            check_ca_file(ca_file)
        self._ca_file = str(ca_file) if ca_file else ""
        self._seconds = seconds

    def send(self, request: Request) -> JsonResponse:
        """Raises JsonHttpError: also for an endpoint that answers byte by byte, whose time is that of this client."""
        target = request.target
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            context = self._context if target.scheme == "https" else None
            addresses = list(dict.fromkeys(str(one[4][0]) for one in found))[:MAX_ADDRESSES]
            connection = PinnedConnection(target, addresses=addresses, timeout=self._seconds, context=context)
            status, body = self._exchange(connection, request)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise JsonHttpError(f"{target.shown}: {error or type(error).__name__}") from None
        if len(body) > MAX_BYTES:
            raise JsonHttpError(f"{target.shown}: the response is longer than {MAX_BYTES // 1024} KiB")
        try:
            found_body = json.loads(body)
        except (ValueError, RecursionError):
            found_body = None
        if not isinstance(found_body, dict):
            raise JsonHttpError(f"{target.shown}: status {status} without a JSON object")
        return JsonResponse(status, found_body)

    def _exchange(self, connection: PinnedConnection, request: Request) -> tuple[int, bytes]:
        over = threading.Event()

        def end() -> None:
            over.set()
            connection.abort()

        timer = threading.Timer(self._seconds, end)
        timer.daemon = True
        timer.start()
        try:
            response = send(connection, request)
            status, body = response.status, response.read(MAX_BYTES + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not over.is_set():
                raise OSError(str(error) or type(error).__name__) from None
        finally:
            timer.cancel()
            connection.close()
        if over.is_set():
            raise TimeoutError(f"no whole response within {self._seconds:g} s")
        return status, body

    @cached_property
    def _context(self) -> TlsContext:
        return tls_context(self._ca_file)
