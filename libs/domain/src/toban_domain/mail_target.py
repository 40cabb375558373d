"""Where mail goes: `smtp://USER:PASSWORD@HOST:PORT/?from=ADDRESS&to=ADDRESS`, with STARTTLS, or `smtps://` with TLS from the start."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

PORTS = {"smtp": 587, "smtps": 465}
MAX_RECIPIENTS = 20
_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?|[0-9a-f:.]*:[0-9a-f:.]*")
# No quoted local parts, comments or names: an address is one word in a header.
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailTarget:
    """A mail server, and whose mail it gets. `tls`: from the start. `user` is empty without a login."""

    tls: bool
    host: str
    port: int
    sender: str
    recipients: tuple[str, ...]
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'smtps' if self.tls else 'smtp'}://{host}:{self.port}"


def is_mail(url: str) -> bool:
    """Whether a URL is for this module."""
    return url.partition(":")[0].lower() in PORTS


def parse_mail(url: str) -> MailTarget:
    """The target in a URL. Raises ValueError without a part of the URL that may be secret."""
    if _FORBIDDEN.search(url):
        raise ValueError("it contains a space, a control character or a backslash; write %20 for a space")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
        given = parse_qs(parts.query, strict_parsing=bool(parts.query), keep_blank_values=True)
    except ValueError:
        raise ValueError("it is not a URL; write smtp://HOST:PORT/?from=ADDRESS&to=ADDRESS") from None
    if not _HOST.fullmatch(host):
        raise ValueError("it has no host name that is valid")
    if parts.path not in ("", "/") or parts.fragment or set(given) - {"from", "to"}:
        raise ValueError("behind the host it has ?from=ADDRESS&to=ADDRESS and nothing else")
    senders, recipients = given.get("from", []), tuple(dict.fromkeys(given.get("to", [])))
    if len(senders) != 1 or not 1 <= len(recipients) <= MAX_RECIPIENTS:
        raise ValueError(f"it needs one `from` and 1 to {MAX_RECIPIENTS} `to`")
    for address in (*senders, *recipients):
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"{address[:80]!r} is no mail address; write name@example.com, with + as %2B")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if bool(user) != bool(password):
        raise ValueError("it has a user without a password, or a password without a user")
    if not f"{user}{password}".isascii() or not f"{user}{password}".isprintable():
        # Later an encoder would refuse it, with the character in its message.
        raise ValueError("its user or password has a character that is not printable ASCII, which SMTP does not take")
    return MailTarget(
        tls=parts.scheme.lower() == "smtps",
        host=host,
        port=port or PORTS[parts.scheme.lower()],
        sender=senders[0],
        recipients=recipients,
        user=user,
        password=password,
    )
