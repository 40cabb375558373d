"""`toban login` and `toban logout`: sign in to a site, and keep the API token for it in a context."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from toban.client.target import is_token
from toban_cli import report
from toban_cli.access_options import read_secret
from toban_cli.cluster_config import CHOSEN
from toban_cli.messages import pb
from toban_domain.access import TOKEN_PREFIX
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.contexts import Context, Contexts

MAX_TOKEN_FILE = 4096
Url = Annotated[
    str,
    typer.Argument(metavar="[URL]", help="Address of the site; without it that of the context.", show_default=False),
]
TokenFrom = Annotated[
    str, typer.Option("--token", metavar="-", help="Only -: read an API token from standard input, or ask for it.")
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="A file with an API token.")]
User = Annotated[str, typer.Option("--user", metavar="USER", help="Sign in as this user (default: ask).")]
MostRole = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="The most that the new token may do (default: all that you may).")
]
Days = Annotated[int, typer.Option("--days", min=1, max=366, help="How long the new token is good.")]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="PEM certificates of the CA of the site.")
]


def login(
    url: Url = "",
    token: TokenFrom = "",
    token_file: TokenFile = None,
    user: User = "",
    role: MostRole = "",
    days: Days = 90,
    ca_file: CaFile = None,
) -> None:
    """Sign in to a site. Later commands go there, with an API token that is kept in a file of mode 0600.

    --context names the context that is made or renewed; without it that is the one of this address, else one with the name of its host.

    Asks for user and password, or takes two lines of standard input, and makes an own token that is named after this machine (see
    `toban token own`). Accounts without a password bring a token: --token - or --token-file.

    Examples:
    toban login https://toban.example.com
    pass show token | toban login https://toban.example.com --context prod --token -
    toban login --context prod
    """
    from toban_cli.contexts import ContextFile
    from toban_cli.rest.site import check_url, chosen_context

    file = ContextFile(os.environ)
    known = file.load()
    name = _name(url, os.environ.get(CHOSEN, ""), known)
    before = known.named.get(name)
    address = check_url(url or (before.url if before else ""))
    authority = str(ca_file.absolute()) if ca_file else before.ca_file if before and before.url == address else ""
    given = _given_token(token, token_file)
    made = (
        _checked(address, authority, given)
        if given
        else _by_password(address, authority, user=user or (before.user if before else ""), role=role, days=days)
    )
    with file.change() as held:
        held[0] = held[0].with_one(name, made[0], current=True)
    used, *notes = chosen_context(os.environ, name)
    report.echo(f"{made[0].user} is signed in to {address} as {made[1]}; {used}")
    if before is not None and before.url == address and before.token_id:
        _revoke(before.token_id, made[0])
    for note in notes:
        report.note(note)


def logout() -> None:
    """Revoke the token that `toban login` made, and delete it from its context. The address stays for the next sign-in.

    --context names the context; without it that is the current one.

    Examples:
    toban logout
    toban logout --context prod
    """
    from dataclasses import replace

    from toban_cli.contexts import ContextFile

    file = ContextFile(os.environ)
    known = file.load()
    name = os.environ.get(CHOSEN) or known.current
    if not name:
        raise TobanError(ErrorCode.NOT_FOUND, "there is no current context; `toban context list` shows all of them")
    old = known.get(name)
    if old.token and old.token_id:
        _revoke(old.token_id, old)
    elif old.token:
        report.note("the token was given to `toban login` and stays good; `toban token revoke-own` ends it")
    with file.change() as held:
        held[0] = held[0].with_one(name, replace(held[0].get(name), token="", token_id=0), current=False)
    report.echo(f"context {name} has no token any more")


def _name(url: str, context: str, known: Contexts) -> str:
    """The name of the context to sign in for. Raises INVALID_ARGUMENT without an address to find one by."""
    from toban_cli.contexts import check_name
    from toban_cli.rest.site import CONTEXT, check_url

    if context:
        if not url and context not in known.named:
            known.get(context)
        return check_name(context)
    if not url:
        name = os.environ.get(CONTEXT, "") or known.current
        if not name:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "no context is in use; give an address: `toban login URL`")
        known.get(name)
        return name
    address = check_url(url)
    same = [name for name, one in known.named.items() if one.url == address]
    return same[0] if same else check_name(re.sub(r"[^A-Za-z0-9._-]+", "-", urlsplit(address).netloc).strip("-."))


def _given_token(source: str, file: Path | None) -> str:
    """The token that the options name; "" without one. Its value is never shown."""
    if source and source != "-":
        raise typer.BadParameter(
            "takes only -: an argument is visible to every user of this machine, so a token is read from standard input",
            param_hint="--token",
        )
    if source and file:
        raise typer.BadParameter("and --token-file exclude each other", param_hint="--token")
    if file is not None:
        try:
            with file.open(encoding="utf-8") as opened:
                found = opened.read(MAX_TOKEN_FILE).strip()
        except (OSError, ValueError) as error:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"--token-file {file} cannot be read ({error})") from None
    elif source:
        found = read_secret("API token", twice=False).strip()
    else:
        return ""
    if not is_token(found):
        # Its value is not shown.
        what = f"--token-file {file}" if file else "what was given"
        message = (
            f"{what} is no API token: one line that begins with {TOKEN_PREFIX}, and nothing else; "
            "the site makes them on its account page"
        )
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    return found


def _checked(url: str, ca_file: str, token: str) -> tuple[Context, str]:
    """A context with a token that the site accepts, and its role."""
    from toban_cli.contexts import Context
    from toban_cli.rest.client import RestClient
    from toban_cli.rest.site import Site

    client = RestClient(Site(url=url, token=token, ca_file=ca_file))
    try:
        who = client.call("Accounts.Authenticate", pb.AuthenticateRequest())
    finally:
        client.close()
    return Context(url=url, token=token, user=who.user, ca_file=ca_file), who.role or "a person without a role"


def _by_password(url: str, ca_file: str, *, user: str, role: str, days: int) -> tuple[Context, str]:
    """A context with a new token, and its role."""
    from toban_cli.contexts import Context
    from toban_cli.rest.sign_in import make_token
    from toban_cli.rest.site import Site

    user = user or _ask_user()
    password = read_secret("Password", twice=False)
    name = f"toban login on {socket.gethostname()}"[:100]
    made = make_token(Site(url=url, ca_file=ca_file), user, password, name=name, role=role, days=days)
    context = Context(url=url, token=made.secret, token_id=made.id, user=made.user, ca_file=ca_file)
    return context, f"{made.role}, by token {made.id} until {made.ends_at[:10]}"


def _ask_user() -> str:
    import sys

    if sys.stdin.isatty():
        return str(typer.prompt("User", err=True))
    return read_secret("User", twice=False)


def _revoke(token_id: int, context: Context) -> None:
    """Revokes a token of the person of a context; a note when that fails."""
    from toban_cli.rest.client import RestClient
    from toban_cli.rest.site import Site

    client = RestClient(Site(url=context.url, token=context.token, ca_file=context.ca_file))
    try:
        client.call("Accounts.RevokeOwnToken", pb.RevokeTokenRequest(id=token_id, reason="toban logout"))
    except TobanError as error:
        if error.code not in (ErrorCode.UNAUTHENTICATED, ErrorCode.NOT_FOUND):
            report.note(f"warning: token {token_id} is not revoked ({error.message}); `toban token own` lists it")
    finally:
        client.close()
