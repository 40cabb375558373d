"""Which site a client talks to, and with which token: arguments, the variables TOBAN_URL and TOBAN_TOKEN, or a context of `toban login`."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toban.errors import ConfigError

_API = "/api/v1"
_TOKEN = re.compile(r"toban_pat_[A-Za-z0-9_-]{1,200}")
_OTHERS = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`url` is the address of a site, with or without `/api/v1`. `ca_file` has PEM certificates; "" = those that the system trusts.

    Raises ConfigError for an address or a token that cannot be used. Plain HTTP is for loopback addresses only.
    """

    url: str
    token: str = field(repr=False)
    ca_file: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked_url(self.url))
        if not _TOKEN.fullmatch(self.token):
            # Its value is not shown.
            raise _wrong(
                "the token is no API token: one line that begins with toban_pat_; `toban token create USER NAME` makes one"
            )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Target:
        """TOBAN_URL with TOBAN_TOKEN (and TOBAN_CA_FILE), else the context TOBAN_CONTEXT, else the current one. Raises ConfigError.

        TOBAN_TOKEN without TOBAN_URL takes the place of the token of the context, and goes to the address of the context.

        >>> Target.from_env({"TOBAN_URL": "https://toban.example.com/api/v1/", "TOBAN_TOKEN": "toban_pat_a"}).url
        'https://toban.example.com'
        """
        given = os.environ if environ is None else environ
        token, ca_file = given.get("TOBAN_TOKEN", "").strip(), given.get("TOBAN_CA_FILE", "")
        if url := given.get("TOBAN_URL", "").strip():
            if not token:
                raise _wrong("TOBAN_URL is set without TOBAN_TOKEN; set both, or `toban login URL` and unset TOBAN_URL")
            return cls(url=url, token=token, ca_file=ca_file)
        context = _read_context(given)
        token = token or str(context.get("token", ""))
        if not token:
            raise _wrong("the context has no token; sign in with `toban login URL`")
        return cls(url=str(context.get("url", "")), token=token, ca_file=ca_file or str(context.get("ca_file", "")))

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith("https:")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or (443 if self.is_tls else 80)

    @property
    def host_header(self) -> str:
        """The header Host."""
        return urlsplit(self.url).netloc

    @property
    def base(self) -> str:
        """The path of the REST interface."""
        return urlsplit(self.url).path + _API

    def tls(self) -> ssl.SSLContext | None:
        """What verifies the site's certificate; None for plain HTTP. Raises ConfigError for an unusable CA file."""
        if not self.is_tls:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except (OSError, ValueError) as error:
            message = f"the CA file {self.ca_file} cannot be used ({error}); give a file of PEM certificates"
            raise _wrong(message) from None


def _checked_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    shown = repr(text[:200]) if "@" not in text else "the address"
    if not host or parts.scheme not in ("http", "https") or not text.isprintable() or " " in text:
        raise _wrong(f"{shown} is no address of a site; write it as https://toban.example.com")
    if parts.username is not None or parts.query or parts.fragment:
        raise _wrong(f"{shown} has more than a host and a path; leave out users, passwords, ? and #")
    if parts.scheme == "http" and not _is_loopback(host):
        raise _wrong(f"{shown} is plain HTTP, which would show the token to the network; use https://{parts.netloc}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(_API)}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _read_context(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """A context of the file of `toban login`, which holds tokens and so belongs to its user alone."""
    import tomllib

    given = environ.get("XDG_CONFIG_HOME", "")
    home = Path(given) if given.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    path = home / "toban" / "contexts.toml"
    try:
        with path.open("rb") as opened:
            facts = os.fstat(opened.fileno())
            if facts.st_mode & _OTHERS:
                raise _wrong(f"{path} holds API tokens and other users can open it; run `chmod 600 {path}`")
            if facts.st_uid != os.geteuid():
                raise _wrong(f"{path} belongs to another user (uid {facts.st_uid}); use your own file")
            found = tomllib.load(opened)
        name = environ.get("TOBAN_CONTEXT", "") or str(found.get("current", ""))
        context = found.get("contexts", {}).get(name)
    except FileNotFoundError:
        raise _wrong("no site is named; set TOBAN_URL and TOBAN_TOKEN, or sign in with `toban login URL`") from None
    except (OSError, ValueError, AttributeError) as error:
        raise _wrong(f"{path} cannot be read ({error}); correct it, or delete it and `toban login URL` again") from None
    if not isinstance(context, dict):
        known = ", ".join(sorted(found.get("contexts", {}))) or "none"
        message = f"{path} has no context {name!r}, only: {known}; set TOBAN_CONTEXT, or `toban login URL`"
        raise _wrong(message)
    return context


def _wrong(message: str) -> ConfigError:
    return ConfigError(message, code="CONFIG_INVALID")
