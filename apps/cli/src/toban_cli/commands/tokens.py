"""`toban token`: API tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toban_cli.access_options import ForJob, ForLabels, UserName, format_selector, selector
from toban_cli.client import call
from toban_cli.formatting import NOTHING, age, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import Column, show, show_done
from toban_domain.access import WORKER, Role

if TYPE_CHECKING:
    from datetime import datetime

    from toban_proto.v1.coordinator_pb2 import AccessSelector

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.", show_default=False)]
TokenId = Annotated[int, typer.Argument(metavar="TOKEN", min=1, help="Number of the token.", show_default=False)]
MostRole = Annotated[
    str,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="The most that the token may do, whatever its user may. Default: viewer; operator with --scope worker:TYPE.",
        show_default=False,
    ),
]
ForWhom = Annotated[
    str,
    typer.Option(
        "--scope",
        metavar="SCOPE[:ID]",
        help="Only for this scope: system, account:17, user:ada; or worker:TYPE, for the external steps of this worker_type and nothing else.",
    ),
]
Days = Annotated[int, typer.Option("--days", min=1, max=366, help="How long the token is good.")]


def add(
    user: UserName,
    name: TokenName,
    role: MostRole = "",
    days: Days = 90,
    job: ForJob = "",
    label: ForLabels = None,
    scope: ForWhom = "",
    output: Output = Format.TABLE,
) -> None:
    """Make an API token for a user. It is shown once and stored as a hash.

    Examples:
    toban token add bob ci --role operator --job deploy --days 30
    toban token add bob gpu-1 --scope worker:transcode
    """
    selected = selector(job, label or [], scope)
    role = role or default_role(selected)
    request = pb.CreateTokenRequest(user=user, name=name, role=role, selector=selected, days=days)
    answer = call("Accounts.CreateToken", request)
    until = local(answer.ends_at, wall_now())
    about = f"token {answer.id} of {user}: {role} for {format_selector(selected)}, until {until}; it is not shown again"
    show_done(output, answer, [answer.secret, about], name=lambda item: item.secret)


def default_role(selected: AccessSelector) -> str:
    """The role of a token for which none was given: the lowest one that has a use."""
    return Role.OPERATOR if selected.scope == WORKER else Role.VIEWER


def list_tokens(
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Only those of this user.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """List tokens, the newest first; never their secrets.

    Examples:
    toban token list --user bob
    """
    found = call("Accounts.ListTokens", pb.ListTokensRequest(user=user)).tokens
    table = token_columns(wall_now())
    show(output, found, table=table, empty="No tokens.", name=lambda item: str(item.id))


def revoke(token: TokenId, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Revoke a token at once.

    Examples:
    toban token revoke 7 --reason "it was in a log"
    """
    answer = call("Accounts.RevokeToken", pb.RevokeTokenRequest(id=token, reason=reason))
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
