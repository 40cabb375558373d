"""Which site the commands go to, and with which token: variables, the local stack, or the current context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from toban_cli.cluster_config import DIRECT, TOKEN, local_context, read_stack, read_token, unknown_variables
from toban_cli.contexts import ContextFile
from toban_domain.errors import ErrorCode, TobanError

URL, CONTEXT, CA_FILE = "TOBAN_URL", "TOBAN_CONTEXT", "TOBAN_CA_FILE"
COORDINATORS, HOME = "SCHEDULER_COORDINATORS", "TOBAN_HOME"
LOCAL = "local stack"
_API = "/api/v1"
_LOCAL_HINT = "`make status` shows the processes of the stack, and `toban --direct` does without the site"
_HINT = "check the address (`toban context show`) and whether the site runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`url` has no slash at its end. `ca_file` is "" where the system's CAs count. `name` tells where it comes from."""

    url: str
    token: str = field(default="", repr=False)
    ca_file: str = ""
    name: str = ""
    hint: str = _HINT
    """What helps when the site cannot be reached."""
    renewal: str = "`toban login` makes a new token"
    """What helps when the token is not good any more."""


def read_site(environ: Mapping[str, str]) -> Site | None:
    """The site of these variables, else of the local stack, else of the current context; None: the commands go to coordinators.

    Raises CONFIG_INVALID and, for a context that does not exist, NOT_FOUND.
    """
    if environ.get(DIRECT):
        return None
    for problem in unknown_variables(environ):
        # It may be the misspelt name of another cluster.
        raise problem
    if url := environ.get(URL, "").strip():
        token = read_token(environ)
        if not token:
            raise TobanError(ErrorCode.CONFIG_INVALID, f"{URL} is set without {TOKEN}; set both, or `toban login URL`")
        return Site(
            url=check_url(url, URL),
            token=token,
            ca_file=environ.get(CA_FILE, ""),
            name=URL,
            renewal=f"set another {TOKEN}",
        )
    if name := environ.get(CONTEXT, ""):
        return _site_of(environ, name)
    if environ.get(COORDINATORS):
        return None
    if environ.get(HOME):
        return _local_site(environ)
    current = ContextFile(environ).load().current
    return _site_of(environ, current) if current else None


def chosen_context(environ: Mapping[str, str], name: str) -> list[str]:
    """What a person reads who has chosen this context: whether commands use it, or which variable counts before it."""
    before = next((one for one in (DIRECT, URL, CONTEXT, COORDINATORS, HOME) if environ.get(one)), "")
    if not before or (before == CONTEXT and environ[CONTEXT] == name):
        return [f"commands use context {name} from now on"]
    by_whom = " as scripts/toban does," if before == HOME else ""
    remedy = f"set {CONTEXT}={name}" if before in (COORDINATORS, HOME, CONTEXT) else "unset it"
    return [
        f"context {name} is the current one",
        f"note: {before} is set,{by_whom} and counts before the current context; {remedy} to use the context",
    ]


def check_url(text: str, source: str = "") -> str:
    """The address of a site without what follows it; `source` is where it comes from.

    Raises CONFIG_INVALID for one that is none, or that would send a token in the clear.
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


def _site_of(environ: Mapping[str, str], name: str) -> Site:
    context = ContextFile(environ).load().get(name)
    token = read_token(environ) or context.token
    if not token:
        message = f"context {name} has no token; sign in with `toban login --context {name}`"
        raise TobanError(ErrorCode.UNAUTHENTICATED, message)
    ca_file = environ.get(CA_FILE) or context.ca_file
    return Site(url=check_url(context.url, f"context {name}"), token=token, ca_file=ca_file, name=f"context {name}")


def _local_site(environ: Mapping[str, str]) -> Site | None:
    """The site of the stack that `make up` has started, where it has one and a token for it."""
    sites, token = read_stack(environ).get("sites"), local_context(environ)
    if not sites or not token:
        return None
    return Site(
        url=f"http://{sites[0]}",
        token=read_token(environ) or token,
        name=LOCAL,
        hint=_LOCAL_HINT,
        renewal="`make up` makes a new token",
    )


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _wrong(message: str) -> TobanError:
    return TobanError(ErrorCode.CONFIG_INVALID, message)
