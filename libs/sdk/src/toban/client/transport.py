"""What both transports send, and what a failed connection means."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

from toban.client.flow import Request, TransportError
from toban.client.target import Target

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


def request_headers(target: Target, request: Request) -> dict[str, str]:
    """The headers of a request, with the token where there is one. They go to the address of the target alone, since redirects are not followed."""
    headers = {
        "Host": target.host_header,
        **({"Authorization": f"Bearer {target.token}"} if target.token else {}),
        "User-Agent": target.user_agent,
        "Accept": "*/*",
        **({} if request.body is None else {"Content-Type": "application/json"}),
        **request.headers,
    }
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            # The value may be secret, so it is not shown.
            raise ValueError(f"the value of header {name} has a character that headers cannot have; use ASCII")
    return headers


def request_target(target: Target, request: Request) -> str:
    """Path and query of a request."""
    base = urlsplit(target.url).path if request.is_page else target.base
    return f"{base}{request.path}{'?' + urlencode(request.query) if request.query else ''}"


def request_body(request: Request) -> bytes | None:
    """The body of a request; None without one."""
    if request.body is None or isinstance(request.body, bytes):
        return request.body
    return json.dumps(request.body, allow_nan=False).encode()


def lower_names(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers of an answer with names in lower case. Of one that comes again the last counts; cookies are lines of one value."""
    pairs = [(name.lower(), value) for name, value in headers]
    cookies = [value for name, value in pairs if name == "set-cookie"]
    return {**dict(pairs), **({"set-cookie": "\n".join(cookies)} if cookies else {})}


def transport_error(error: Exception, target: Target, timeout: float, *, never_sent: bool = False) -> TransportError:
    """What a person reads about a connection that failed."""
    url, (unreachable, untrusted) = target.url, target.remedies
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = _CERTIFICATE_REMEDIES.get(error.verify_code, untrusted)
        message = f"the certificate of {url} is not trusted ({error.verify_message}); {remedy}"
        return TransportError(message, is_final=True, never_sent=True)
    if isinstance(error, ssl.SSLError) and error.reason in _PLAIN_ANSWERS:
        message = (
            f"{url} does not answer with TLS; check its port, and whether a proxy for https stands before the site"
        )
        return TransportError(message, is_final=True, never_sent=True)
    if isinstance(error, TimeoutError):
        message = f"{url} did not answer within {timeout:g} s"
        return TransportError(message, never_sent=never_sent, is_timeout=True)
    message = f"cannot reach the site at {url} ({_reason(error)}); {unreachable}"
    return TransportError(message, never_sent=never_sent, is_broken=not never_sent)


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "its host name is unknown"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, http.client.IncompleteRead | EOFError):
        return "the connection ended in the middle of an answer"
    if isinstance(error, OSError):
        return (error.strerror or str(error) or "the connection ended").lower()
    return "it does not speak HTTP, or ended the connection"
