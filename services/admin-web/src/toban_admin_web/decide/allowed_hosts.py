"""Host names that a request may carry; any other name is refused (DNS rebinding)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_allowed(host_header: str, names: Iterable[str]) -> bool:
    """Whether a Host header names the site: loopback, or one of `names` (lower case, without a port)."""
    name = host_name(host_header)
    return bool(name) and (is_loopback(name) or name in set(names))


def host_name(host_header: str) -> str:
    """The name in a Host header, in lower case and without its port; "" for a malformed header."""
    host = host_header.strip().lower()
    if host.startswith("["):
        inside, bracket, rest = host[1:].partition("]")
        return inside if bracket and (not rest or _is_port(rest)) else ""
    name, colon, port = host.partition(":")
    return name if not colon or _is_port(colon + port) else ""


def _is_port(text: str) -> bool:
    return text.startswith(":") and text[1:].isascii() and text[1:].isdigit()
