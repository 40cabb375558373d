"""HTTP to one site: a connection that is kept, time limits, and a second try where a repeated request has no second effect."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION

if TYPE_CHECKING:
    from toban_cli.rest.site import Site

API = "/api/v1"
# A site that allows no request now is asked again after at most this many seconds.
MOST_WAIT_SECONDS = 3.0
_TOO_MANY = 429
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """The type of the content, such as application/json."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Http:
    """Not safe for threads."""

    def __init__(self, site: Site) -> None:
        self._site = site
        parts = urlsplit(site.url)
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path
        self._tls = _tls(site) if parts.scheme == "https" else None
        self._kept: http.client.HTTPConnection | None = None
        self.headers = {"User-Agent": f"toban/{VERSION}", "Accept": "application/json"}
        if site.token:
            self.headers["Authorization"] = f"Bearer {site.token}"

    def send(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        repeatable: bool,
        query: Pairs | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The answer, whatever its status. `path` is below the site; `timeout` bounds each wait, seconds.

        A `repeatable` request whose connection breaks is sent once more. Raises UNAVAILABLE, DEADLINE_EXCEEDED, and
        CONFIG_INVALID for a certificate that is not trusted.
        """
        target = self._target(path, query)
        sent = {**self.headers, **(headers or {})}
        for last in (False, True):
            if not repeatable:
                # A connection that the site has closed meanwhile would leave it open whether the request arrived.
                self.close()
            try:
                reply = self._exchange(method, target, body, sent, timeout)
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if last or not (repeatable and _is_broken(error)):
                    raise self._failure(error, timeout) from None
                continue
            if last or not repeatable or not _wait_for_turn(reply):
                return reply
        raise AssertionError("the last try returns or raises")

    def stream(self, path: str, *, query: Pairs | None = None, timeout: float) -> tuple[Reply, Iterator[bytes]]:
        """The head of an answer, and its lines as they come, over a connection of its own. `body` has the answer to an error.

        `timeout` is the longest silence, seconds. Reading raises what `send` raises.
        """
        connection = self._connect(timeout)
        try:
            connection.request("GET", self._target(path, query), headers={**self.headers, "Accept": "*/*"})
            response = connection.getresponse()
            failed = response.status != http.client.OK
            reply = _reply(response, response.read() if failed else b"")
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise self._failure(error, timeout) from None
        if failed:
            connection.close()
            return reply, iter(())
        return reply, self._lines(connection, response, timeout)

    def close(self) -> None:
        """Ends the connection; the next request opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _lines(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, timeout: float
    ) -> Iterator[bytes]:
        try:
            while line := response.readline():
                yield line
        except (http.client.HTTPException, OSError) as error:
            raise self._failure(error, timeout) from None
        finally:
            connection.close()

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout: float
    ) -> Reply:
        if self._kept is None:
            self._kept = self._connect(timeout)
        self._kept.timeout = timeout
        if self._kept.sock is not None:
            self._kept.sock.settimeout(timeout)
        self._kept.request(method, target, body=body, headers=dict(headers))
        response = self._kept.getresponse()
        return _reply(response, response.read())

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)

    def _target(self, path: str, query: Pairs | None) -> str:
        return f"{self._base}{path}{'?' + urlencode(query) if query else ''}"

    def _failure(self, error: Exception, timeout: float) -> TobanError:
        """What a person reads about a connection that failed."""
        url = self._site.url
        if isinstance(error, ssl.SSLCertVerificationError):
            message = (
                f"the certificate of {url} is not trusted ({error.verify_message}); name the CA that signed it with "
                "`toban login URL --ca-file FILE` or TOBAN_CA_FILE"
            )
            return TobanError(ErrorCode.CONFIG_INVALID, message)
        if isinstance(error, TimeoutError):
            message = (
                f"{url} did not answer within {timeout:g} s; a change may have happened, so read before you repeat it"
            )
            return TobanError(ErrorCode.DEADLINE_EXCEEDED, message)
        message = f"cannot reach the site at {url} ({_reason(error)}); {self._site.hint}"
        return TobanError(ErrorCode.UNAVAILABLE, message)


def _reply(response: http.client.HTTPResponse, body: bytes) -> Reply:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        # Cookies come in a header each.
        before = headers.get(name.lower())
        headers[name.lower()] = value if before is None else f"{before}\n{value}"
    return Reply(status=response.status, headers=headers, body=body)


def _is_broken(error: Exception) -> bool:
    """Whether a connection ended under a request, as one does that was kept too long."""
    return isinstance(error, ConnectionError | http.client.HTTPException) and not isinstance(
        error, ConnectionRefusedError
    )


def _wait_for_turn(reply: Reply) -> bool:
    """Waits as a 429 asks for; whether another try makes sense."""
    after = reply.headers.get("retry-after", "")
    if reply.status != _TOO_MANY or not after.isdigit() or int(after) > MOST_WAIT_SECONDS:
        return False
    Event().wait(int(after))
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "its host name is unknown"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "it does not speak HTTP, or ended the connection"


def _tls(site: Site) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=site.ca_file or None)
    except (OSError, ValueError) as error:
        message = f"the CA file {site.ca_file} cannot be used ({error}); give a file of PEM certificates"
        raise TobanError(ErrorCode.CONFIG_INVALID, message) from None
