"""HTTP to one site: a connection that is kept, time limits, and more tries where a repeated request has no second effect."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlencode, urlsplit

from toban_cli.cluster_config import is_token
from toban_cli.ports import Client
from toban_cli.rest.retry import RetryBudget
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION

if TYPE_CHECKING:
    from toban_cli.rest.site import Site

API = "/api/v1"
_READ_BYTES = 65_536
_UNTRUSTED = "name the CA that signed it with `toban login URL --ca-file FILE` or TOBAN_CA_FILE"
_OTHER_NAME = "use a host name that the certificate has, or give the site a certificate for this one"
# By the numbers of OpenSSL (X509_V_ERR_*).
_CERTIFICATE_REMEDIES = {
    9: "it is not valid yet: check the clock of this machine",
    10: "it has expired: the site needs a new one; check the clock of this machine too",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
# What OpenSSL has for bytes that are no TLS.
_PLAIN_ANSWERS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL"})
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
    """Not safe for threads. `retry_budget` makes the budget of a request; a caller that waits for a run gives more."""

    def __init__(self, site: Site) -> None:
        self._site = site
        parts = urlsplit(site.url)
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path
        self._tls = _tls(site) if parts.scheme == "https" else None
        self._kept: http.client.HTTPConnection | None = None
        self.retry_budget: Callable[[], RetryBudget] = RetryBudget
        self.headers = {"User-Agent": f"toban/{VERSION}", "Accept": "application/json"}
        if site.token:
            if not is_token(site.token):
                message = f"the token of {site.name or site.url} is no API token; {site.renewal}"
                raise TobanError(ErrorCode.CONFIG_INVALID, message)
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

        A `repeatable` request whose connection breaks is sent once more, and again within its retry budget. Raises UNAVAILABLE,
        DEADLINE_EXCEEDED, and CONFIG_INVALID for a certificate that is not trusted.
        """
        target = self._target(path, query)
        sent = {**self.headers, **(headers or {})}
        if not repeatable:
            # A connection that the site has closed meanwhile would leave it open whether the request arrived.
            self.close()
            return self._once(lambda: self._exchange(method, target, body, sent, timeout), timeout)
        return self._repeated(lambda: self._exchange(method, target, body, sent, timeout), timeout)

    def stream(
        self, path: str, *, query: Pairs | None = None, timeout: float, waits: bool = False
    ) -> tuple[Reply, Iterator[bytes]]:
        """The head of an answer, and its lines as they come, over a connection of its own. `body` has the answer to an error.

        `timeout` is the longest silence, seconds. A `waits` reader waits as `send` does until the stream begins. Reading raises what
        `send` raises, also when the answer ends before its end.
        """
        target, opened = self._target(path, query), _Opened()

        def open_stream() -> Reply:
            opened.connection = self._connect(timeout)
            try:
                opened.connection.request("GET", target, headers={**self.headers, "Accept": "*/*"})
                opened.response = opened.connection.getresponse()
                failed = opened.response.status != http.client.OK
                reply = _reply(opened.response, opened.response.read() if failed else b"")
            except BaseException:
                opened.connection.close()
                raise
            if failed:
                opened.connection.close()
            return reply

        reply = self._repeated(open_stream, timeout) if waits else self._once(open_stream, timeout)
        return reply, self._lines(opened, timeout) if reply.status == http.client.OK else iter(())

    def close(self) -> None:
        """Ends the connection; the next request opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _once(self, exchange: Callable[[], Reply], timeout: float) -> Reply:
        try:
            return exchange()
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise self._failure(error, timeout) from None

    def _repeated(self, exchange: Callable[[], Reply], timeout: float) -> Reply:
        """The answer to a request that may be sent again."""
        budget, again_at_once = self.retry_budget(), True
        while True:
            try:
                reply = exchange()
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if again_at_once and _is_broken(error):
                    again_at_once = False
                    continue
                failure = self._failure(error, timeout)
                lost = timeout if isinstance(error, TimeoutError) else 0.0
                if failure.code is ErrorCode.CONFIG_INVALID or not budget.await_site(lost):
                    raise failure from None
                continue
            if not budget.await_turn(reply.status, reply.headers):
                return reply

    def _lines(self, opened: _Opened, timeout: float) -> Iterator[bytes]:
        """Lines without their ends. `HTTPResponse.readline` would take a connection that breaks between two chunks for the end."""
        held = b""
        try:
            while found := opened.response.read1(_READ_BYTES):
                *lines, held = (held + found).split(b"\n")
                yield from lines
            if held or opened.response.length:
                raise http.client.IncompleteRead(held)
        except (http.client.HTTPException, OSError) as error:
            raise self._failure(error, timeout) from None
        finally:
            opened.connection.close()

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
            remedy = _CERTIFICATE_REMEDIES.get(error.verify_code, _UNTRUSTED)
            message = f"the certificate of {url} is not trusted ({error.verify_message}); {remedy}"
            return TobanError(ErrorCode.CONFIG_INVALID, message)
        if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_ANSWERS:
            message = (
                f"{url} does not answer with TLS; check its port, and whether a proxy for https stands before the site"
            )
            return TobanError(ErrorCode.CONFIG_INVALID, message)
        if isinstance(error, TimeoutError):
            message = (
                f"{url} did not answer within {timeout:g} s; a change may have happened, so read before you repeat it"
            )
            return TobanError(ErrorCode.DEADLINE_EXCEEDED, message)
        message = f"cannot reach the site at {url} ({_reason(error)}); {self._site.hint}"
        return TobanError(ErrorCode.UNAVAILABLE, message)


class SiteClient(Client, Protocol):
    """A client over REST, with the connection to its site."""

    site: Site
    http: Http


class _Opened:
    """A stream that was opened."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse


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


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "its host name is unknown"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    if isinstance(error, http.client.IncompleteRead):
        return "the connection ended in the middle of an answer"
    return "it does not speak HTTP, or ended the connection"


def _tls(site: Site) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=site.ca_file or None)
    except (OSError, ValueError) as error:
        message = f"the CA file {site.ca_file} cannot be used ({error}); give a file of PEM certificates"
        raise TobanError(ErrorCode.CONFIG_INVALID, message) from None
