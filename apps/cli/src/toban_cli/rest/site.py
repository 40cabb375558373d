"""Which site the commands go to, and with which token: variables, the local stack, or the current context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toban.client import target
from toban.errors import ConfigError
from toban_cli.cluster_config import (
    CHOSEN,
    COORDINATORS,
    DIRECT,
    TOKEN,
    given,
    local_context,
    read_stack,
    read_token,
    unknown_variables,
)
from toban_cli.contexts import ContextFile
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.version import VERSION

URL, CONTEXT, CA_FILE = "TOBAN_URL", "TOBAN_CONTEXT", "TOBAN_CA_FILE"
HOME = "TOBAN_HOME"
LOCAL = "local stack"
_LOCAL_HINT = "`toban dev status` shows the processes of the stack, and `toban --direct` does without the site"
_HINT = "check the address (`toban context get`) and whether the site runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(target.Target):
    """A target that may have no token. `url` has no slash at its end. `name` is where it comes from."""

    token: str = field(default="", repr=False)
    name: str = ""
    hint: str = _HINT
    """What helps when the site cannot be reached."""
    renewal: str = "`toban login` makes a new token"
    """What helps when the token is not good any more."""

    def __post_init__(self) -> None:
        """Checks nothing: `check_url` has checked the address, and a connection checks the token."""

    @property
    def user_agent(self) -> str:
        """The header User-Agent."""
        return f"toban/{VERSION}"

    @property
    def remedies(self) -> tuple[str, str]:
        """What helps when the site cannot be reached, and when its certificate is not trusted."""
        return self.hint, f"name the CA that signed it with `toban login URL --ca-file FILE` or {CA_FILE}"


def read_site(environ: Mapping[str, str]) -> Site | None:
    """The site that `--context` names, else of these variables, else of the local stack, else of the current context; None: the commands go to
    coordinators.

    Raises CONFIG_INVALID, INVALID_ARGUMENT for --direct with --context, and, for a context that does not exist, NOT_FOUND.
    """
    chosen = environ.get(CHOSEN, "")
    if environ.get(DIRECT):
        if chosen:
            message = f"--context {chosen} and --direct ({DIRECT}) name two ways; leave one of them out"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        return None
    for problem in unknown_variables(environ):
        # It may be the misspelt name of another cluster.
        raise problem
    if chosen:
        return _site_of(environ, chosen)
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
    if given(environ, COORDINATORS)[1]:
        return None
    if environ.get(HOME):
        return _local_site(environ)
    current = ContextFile(environ).load().current
    return _site_of(environ, current) if current else None


def chosen_context(environ: Mapping[str, str], name: str) -> list[str]:
    """What a person reads who has chosen this context: whether commands use it, or which variable counts before it."""
    coordinators, _ = given(environ, COORDINATORS)
    before = next((one for one in (DIRECT, URL, CONTEXT, coordinators, HOME) if environ.get(one)), "")
    if not before or (before == CONTEXT and environ[CONTEXT] == name):
        return [f"commands use context {name} from now on"]
    by_whom = " as scripts/toban of a clone does," if before == HOME else ""
    remedy = f"set {CONTEXT}={name}" if before in (coordinators, HOME, CONTEXT) else "unset it"
    return [
        f"context {name} is the current one",
        f"note: {before} is set,{by_whom} and counts before the current context; {remedy} to use the context",
    ]


def check_url(text: str, source: str = "") -> str:
    """As `target.check_url`. Raises CONFIG_INVALID."""
    try:
        return target.check_url(text, source)
    except ConfigError as error:
        raise TobanError(ErrorCode.CONFIG_INVALID, error.args[0]) from None


def _site_of(environ: Mapping[str, str], name: str) -> Site:
    context = ContextFile(environ).load().get(name)
    # A token and a CA beside an address are for that address.
    own = {} if environ.get(URL) else environ
    token = read_token(own) or context.token
    if not token:
        message = f"context {name} has no token; sign in with `toban login --context {name}`"
        raise TobanError(ErrorCode.UNAUTHENTICATED, message)
    ca_file = own.get(CA_FILE) or context.ca_file
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
        renewal="`toban dev` makes a new token",
    )
