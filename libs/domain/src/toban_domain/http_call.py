"""An `http` step as the executor reads it: the request, what its response must be, and how often it is tried."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

MAX_REDIRECTS = 5
_SCHEMES = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?\.?|[0-9a-f:.]*:[0-9a-f:.]*")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# What a redirect may take to another origin: everything else may be a secret.
HARMLESS = ("accept", "accept-language", "content-type", "user-agent")


class CallError(ValueError):
    """The step cannot be carried out; the text says why, for the author of the job."""


class Target(NamedTuple):
    """Where a request goes. `path` has the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _SCHEMES[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """For a log: without the query, which may hold secrets."""
        return f"{self.scheme}://{self.authority}{self.path.partition('?')[0]}"


class Request(NamedTuple):
    """One request. Names of headers are as the definition writes them."""

    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes | None = None


class Call(NamedTuple):
    """A whole step. `backoff` are the seconds before each further try, the last one repeated."""

    request: Request
    expected: Sequence[tuple[int, int]] = ((200, 299),)
    attempts: int = 1
    backoff: Sequence[float] = (1.0,)
    response_timeout: float = 60.0
    redirects: int = 0
    result: str = "none"

    def expects(self, status: int) -> bool:
        """Whether the response is a success."""
        return any(low <= status <= high for low, high in self.expected)

    def wait(self, tried: int) -> float:
        """Seconds before the next try, after `tried` of them."""
        return self.backoff[min(tried, len(self.backoff)) - 1]


def read_call(spec: Mapping[str, Any], standard: Mapping[str, str]) -> Call:
    """The step of a definition whose templates are expanded. `standard` headers are sent unless the definition has its own. Raises CallError."""
    method = spec.get("method", "GET")
    if method not in METHODS:
        raise CallError(f"method {method!r} is not one of {', '.join(METHODS)}")
    body, content_type = _body(spec.get("body"))
    headers = {**spec.get("headers", {})}
    for name, value in headers.items():
        if not isinstance(value, str) or not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            raise CallError(f"header {name!r} has a value with control characters, or outside of Latin-1")
    given = {name.lower() for name in headers}
    more = {**standard, **({"Content-Type": content_type} if content_type else {})}
    headers |= {name: value for name, value in more.items() if name.lower() not in given}
    retry = spec.get("retry", {})
    return Call(
        request=Request(method, parse_url(spec["url"]), headers, body),
        expected=tuple(map(status_range, spec.get("expected_status", ["200-299"]))),
        attempts=int(retry.get("attempts", 1)),
        backoff=tuple(map(float, retry.get("backoff_seconds", [1]))),
        response_timeout=float(spec.get("response_timeout_seconds", 60)),
        redirects=min(int(spec.get("follow_redirects", 0)), MAX_REDIRECTS),
        result=spec.get("result", "none"),
    )


def status_range(value: int | str) -> tuple[int, int]:
    """The first and the last status of `200` or "200-299". Raises ValueError."""
    low, dash, high = str(value).partition("-")
    first, last = int(low), int(high if dash else low)
    if not 100 <= first <= last <= 599:
        raise ValueError(f"{value!r} is not a status from 100 to 599, nor a range of them")
    return first, last


def parse_url(url: str) -> Target:
    """The parts of an absolute URL. Raises CallError, without the URL: it may hold secrets."""
    if _FORBIDDEN.search(url):
        raise CallError("the URL has blanks, control characters or backslashes; encode them as %20 or %5C")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError as error:
        raise CallError(f"the URL is not valid ({type(error).__name__}); write https://host/path") from None
    if parts.scheme not in _SCHEMES or not host:
        raise CallError("the URL must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise CallError("the URL has a user or password; put them into a header (Authorization)")
    if not _HOST.fullmatch(host) or port == 0:
        raise CallError(f"{host!r} with port {port} is not a host" if port == 0 else f"{host!r} is not a host")
    path = quote(parts.path or "/", safe="/:@!$&'()*+,;=%~-._")
    query = quote(parts.query, safe="/:@!$&'()*+,;=%~-._?[]")
    # One name has one form, so that a dot at its end passes no list by.
    return Target(parts.scheme, host.rstrip("."), port or _SCHEMES[parts.scheme], f"{path}?{query}" if query else path)


def redirected(request: Request, status: int, target: Target) -> Request:
    """The request that follows a redirect. Raises CallError for one that would take a body, or what TLS protects, to another origin."""
    method, body = request.method, request.body
    if request.target.scheme == "https" and target.scheme == "http":
        raise CallError(f"the redirect leads from https to {target.shown}; it is not followed")
    headers = request.headers
    if status == 303 or (status in (301, 302) and method == "POST"):
        method, body = ("HEAD" if method == "HEAD" else "GET"), None
        headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
    if target.origin != request.target.origin:
        if body is not None:
            raise CallError(f"the redirect would take the body to another origin, {target.shown}; it is not followed")
        headers = {name: value for name, value in headers.items() if name.lower() in HARMLESS}
    return Request(method, target, headers, body)


def _body(value: Any) -> tuple[bytes | None, str]:
    if value is None:
        return None, ""
    if isinstance(value, str):
        return value.encode(errors="replace"), "text/plain; charset=utf-8"
    return json.dumps(value, separators=(",", ":")).encode(), "application/json"
