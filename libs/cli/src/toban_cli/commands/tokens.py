"""`toban token`: API tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toban_cli.access_options import ForJob, ForLabels, ForScope, UserName, format_selector, selector
from toban_cli.formatting import NOTHING, age, local, wall_now
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import Column, show, show_done

if TYPE_CHECKING:
    from datetime import datetime

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.", show_default=False)]
TokenId = Annotated[int, typer.Argument(metavar="TOKEN", min=1, help="Number of the token.", show_default=False)]
MostRole = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="The most that the token may do, whatever its user may.")
]
Days = Annotated[int, typer.Option("--days", min=1, max=366, help="How long the token is good.")]


def create(
    user: UserName,
    name: TokenName,
    role: MostRole = "viewer",
    days: Days = 90,
    job: ForJob = "",
    label: ForLabels = None,
    scope: ForScope = "",
    output: Output = Format.TABLE,
) -> None:
    """Make an API token for a user. It is shown once and stored as a hash.

    Examples:
    toban token create bob ci --role operator --job deploy --days 30
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import CreateTokenRequest

    selected = selector(job, label or [], scope)
    request = CreateTokenRequest(user=user, name=name, role=role, selector=selected, days=days)
    with connect() as client:
        answer = client.accounts("CreateToken", request)
    until = local(answer.ends_at, wall_now())
    about = f"token {answer.id} of {user}: {role} for {format_selector(selected)}, until {until}; it is not shown again"
    show_done(output, answer, [answer.secret, about], name=lambda item: item.secret)


def list_tokens(
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Only those of this user.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """List tokens, the newest first; never their secrets.

    Examples:
    toban token list --user bob
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import ListTokensRequest

    with connect() as client:
        found = client.accounts("ListTokens", ListTokensRequest(user=user)).tokens
    table = token_columns(wall_now())
    show(output, found, table=table, empty="No tokens.", name=lambda item: str(item.id))


def revoke(token: TokenId, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Revoke a token at once.

    Examples:
    toban token revoke 7 --reason "it was in a log"
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import RevokeTokenRequest

    with connect() as client:
        answer = client.accounts("RevokeToken", RevokeTokenRequest(id=token, reason=reason))
    show_done(output, answer, f"token {token} revoked", name=lambda _: str(token))


def token_columns(now: datetime) -> list[Column]:
    """The columns of a list of tokens."""
    return [
        Column("TOKEN", lambda item: str(item.id)),
        Column("USER", lambda item: item.user),
        Column("NAME", lambda item: item.name, loose=True),
        Column("ROLE", lambda item: item.role),
        Column("FOR", lambda item: format_selector(item.selector), loose=True),
        Column("UNTIL", lambda item: "revoked" if item.revoked else local(item.ends_at, now)),
        Column("USED", lambda item: age(item.last_used_at, now)),
        Column("FROM", lambda item: item.last_used_from or NOTHING),
    ]
