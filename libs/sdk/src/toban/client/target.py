"""Which site a client talks to, and with which token: arguments, the variables TOBAN_URL and TOBAN_TOKEN, or a context of `toban login`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from toban.errors import ConfigError
from toban.version import VERSION

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
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
        object.__setattr__(self, "url", check_url(self.url))
        if not is_token(self.token):
            # Its value is not shown.
            raise _wrong(
                "the token is no API token: one line that begins with toban_pat_; `toban token add USER NAME` makes one"
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

    @property
    def user_agent(self) -> str:
        """The header User-Agent."""
        return f"toban-sdk/{VERSION}"

    @property
    def remedies(self) -> tuple[str, str]:
        """What helps when the site cannot be reached, and when its certificate is not trusted."""
        return (
            "check the address, and whether the site runs",
            "name the CA that signed it (`ca_file`, or TOBAN_CA_FILE)",
        )

    def tls(self) -> ssl.SSLContext | None:
        """What verifies the site's certificate; None for plain HTTP. Raises ConfigError for an unusable CA file."""
        if not self.is_tls:
            return None
        import ssl

        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except (OSError, ValueError) as error:
            message = f"the CA file {self.ca_file} cannot be used ({error}); give a file of PEM certificates"
            raise _wrong(message) from None


def is_token(text: str) -> bool:
    """Whether a text has the form of an API token, alone and on one line."""
    return _TOKEN.fullmatch(text) is not None


def check_url(text: str, source: str = "") -> str:
    """The address of a site without what follows it; `source` is where it comes from, for the error.

    Raises ConfigError for one that is none, or that would send a token in the clear.
    """
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    shown = f"{source}: " * bool(source) + (repr(text[:200]) if "@" not in text else "the address")
    if not host or parts.scheme not in ("http", "https") or not text.isprintable() or " " in text:
        raise _wrong(f"{shown} is no address of a site; write it as https://toban.example.com")
    if parts.username is not None or parts.query or parts.fragment:
        raise _wrong(f"{shown} has more than a host and a path; leave out users, passwords, ? and #")
    if parts.scheme == "http" and not _is_loopback(host):
        raise _wrong(f"{shown} is plain HTTP, which would show the token to the network; use https://{parts.netloc}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(_API)}"


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def contexts_path(environ: Mapping[str, str]) -> Path:
    """The file of `toban login` of the person whose environment this is."""
    given = environ.get("XDG_CONFIG_HOME", "")
    home = Path(given) if given.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return home / "toban" / "contexts.toml"


def read_contexts(path: Path, parse: Callable[[dict[str, Any]], T]) -> T:
    """The content of that file, which has tokens and so belongs to its user alone, as `parse` gives it.

    Raises FileNotFoundError, and ConfigError for a file that others can open, that belongs to another user, or that is damaged, and on
    systems such as Windows, where its mode does not show who can open it.
    """
    import tomllib

    if not hasattr(os, "geteuid"):
        raise _wrong("this system has no users and modes of files that protect tokens; set TOBAN_URL and TOBAN_TOKEN")
    try:
        with path.open("rb") as opened:
            facts = os.fstat(opened.fileno())
            if facts.st_mode & _OTHERS:
                raise _wrong(
                    f"{path} holds API tokens and other users can open it (mode {facts.st_mode & 0o777:04o}); "
                    f"run `chmod 600 {path}`, and revoke tokens that others may have read"
                )
            if facts.st_uid != os.geteuid():
                raise _wrong(f"{path} belongs to another user (uid {facts.st_uid}); use your own file")
            return parse(tomllib.load(opened))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _wrong(f"{path} cannot be read ({error}); correct it, or delete it and `toban login URL` again") from None


def _read_context(environ: Mapping[str, str]) -> Mapping[str, Any]:
    path = contexts_path(environ)
    try:
        name, named = read_contexts(
            path,
            lambda found: (
                environ.get("TOBAN_CONTEXT", "") or str(found.get("current", "")),
                dict(found.get("contexts", {}).items()),
            ),
        )
    except FileNotFoundError:
        name, named = "", {}
    # `toban dev down` leaves a file without contexts.
    if not named:
        raise _wrong(
            "no site is named; set TOBAN_URL and TOBAN_TOKEN, sign in with `toban login URL`, or start a stack on this machine with `toban dev`"
        )
    context = named.get(name)
    if not isinstance(context, dict):
        known = ", ".join(sorted(named))
        message = f"{path} has no context {name!r}, only: {known}; set TOBAN_CONTEXT, or `toban login URL`"
        raise _wrong(message)
    return context


def _wrong(message: str) -> ConfigError:
    return ConfigError(message, code="CONFIG_INVALID")
