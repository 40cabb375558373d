"""What protects a person's browser session: cookie names, the origin of requests that write, form tokens, redirect targets."""

from __future__ import annotations

import hmac
from hashlib import sha256
from ipaddress import ip_address

from toban_admin_web.decide.allowed_hosts import host_name, is_loopback

SESSION, FORM = "session", "form"
MAX_PATH = 2000
_HOST_PREFIX = "__Host-toban-"


def is_plain(host_header: str) -> bool:
    """Whether the site is reached on this machine, without TLS. By any other name it is behind a proxy with TLS."""
    return is_loopback(host_name(host_header))


def cookie_name(kind: str, host_header: str) -> str:
    """Behind TLS a `__Host-` cookie, which browsers keep for TLS and this very host. Ports of one machine share cookies, so there it has the port."""
    if not is_plain(host_header):
        return f"{_HOST_PREFIX}{kind}"
    _, colon, port = host_header.rpartition(":")
    return f"toban-{kind}-{port}" if colon and port.isascii() and port.isdigit() else f"toban-{kind}"


def is_same_origin(*, origin: str, fetch_site: str, host_header: str) -> bool:
    """Whether a request that writes comes from a page of the site: by Origin, or where a browser leaves that out, by Sec-Fetch-Site."""
    if not origin:
        return fetch_site == "same-origin"
    host = host_header.strip().lower()
    schemes = ("http", "https") if is_plain(host_header) else ("https",)
    return origin.lower() in {f"{scheme}://{host}" for scheme in schemes}


def form_token(secret: str, purpose: str) -> str:
    """What a form carries to show that the site made it for this cookie."""
    return hmac.new(secret.encode(), f"toban form {purpose}".encode(), sha256).hexdigest()


def is_form_token(given: str, secret: str, purpose: str) -> bool:
    """Whether `given` is the token for this cookie; never for an empty one."""
    return bool(secret) and hmac.compare_digest(given.encode(), form_token(secret, purpose).encode())


def local_path(raw: str) -> str:
    """A path of this site to go on to; "/" for anything else, such as the address of another host."""
    if not raw.startswith("/") or raw[1:2] in ("/", "\\") or len(raw) > MAX_PATH or not raw.isprintable():
        return "/"
    return raw


def client_address(remote: str, forwarded: str, *, proxies: int) -> str:
    """Where a request comes from: the connection, or with proxies of ours in front the entry that the outermost of them added."""
    entries = [entry.strip() for entry in forwarded.split(",")]
    found = entries[-proxies] if 0 < proxies <= len(entries) else ""
    try:
        return str(ip_address(found))
    except ValueError:
        return remote
