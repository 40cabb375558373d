"""`toban user passwd`, `sessions`, `end-session`, and `toban token own`, `add-own`, `revoke-own`: the account that the command acts for."""

from __future__ import annotations

from typing import Annotated

import typer

from toban_cli.access_options import ForJob, ForLabels, format_selector, read_secret, selector
from toban_cli.client import call, connect
from toban_cli.commands.tokens import Days, ForWhom, MostRole, TokenId, TokenName, default_role, token_columns
from toban_cli.formatting import NOTHING, age, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import Column, show, show_done

SessionId = Annotated[int, typer.Argument(metavar="SESSION", min=1, help="Number of the session.", show_default=False)]


def passwd(output: Output = Format.TABLE) -> None:
    """Change the own password: asks for the present and the new one, or takes two lines of standard input. Every session ends.

    Examples:
    toban user passwd
    """
    current = read_secret("Present password", twice=False)
    request = pb.ChangeOwnPasswordRequest(current=current, password=read_secret("New password"))
    answer = call("Accounts.ChangeOwnPassword", request)
    show_done(
        output, answer, f"the password is changed; {answer.ended} sessions ended", name=lambda item: str(item.ended)
    )


def list_sessions(output: Output = Format.TABLE) -> None:
    """List the own sessions at the site, the newest first.

    Examples:
    toban user sessions
    """
    found = call("Accounts.ListOwnSessions", pb.ListOwnSessionsRequest()).sessions
    now = wall_now()
    table = [
        Column("SESSION", lambda item: str(item.id)),
        Column("FROM", lambda item: item.address or NOTHING),
        Column("SINCE", lambda item: age(item.created_at, now)),
        Column("USED", lambda item: age(item.last_used_at, now)),
        Column("UNTIL", lambda item: local(item.ends_at, now)),
        Column("BROWSER", lambda item: item.user_agent or NOTHING, loose=True),
    ]
    show(output, found, table=table, empty="No sessions.", name=lambda item: str(item.id))


def end_session(session: SessionId, output: Output = Format.TABLE) -> None:
    """End a session of the own account.

    Examples:
    toban user end-session 31
    """
    answer = call("Accounts.EndOwnSession", pb.EndOwnSessionRequest(id=session))
    show_done(output, answer, f"session {session} ended", name=lambda _: str(session))


def add_token(
    name: TokenName,
    role: MostRole = "",
    days: Days = 90,
    job: ForJob = "",
    label: ForLabels = None,
    scope: ForWhom = "",
    output: Output = Format.TABLE,
) -> None:
    """Make an API token for the own account, with at most its role. It is shown once and stored as a hash.

    Examples:
    toban token add-own ci --role operator --job deploy --days 30
    toban token add-own gpu-1 --scope worker:transcode
    """
    selected = selector(job, label or [], scope)
    role = role or default_role(selected)
    with connect() as client:
        request = pb.CreateOwnTokenRequest(name=name, role=role, selector=selected, days=days)
        answer = client.call("Accounts.CreateOwnToken", request)
    until = local(answer.ends_at, wall_now())
    about = f"token {answer.id}: {role} for {format_selector(selected)}, until {until}; it is not shown again"
    show_done(output, answer, [answer.secret, about], name=lambda item: item.secret)


def list_tokens(output: Output = Format.TABLE) -> None:
    """List the tokens of the own account, the newest first; never their secrets.

    Examples:
    toban token own
    """
    found = call("Accounts.ListOwnTokens", pb.ListOwnTokensRequest()).tokens
    show(output, found, table=token_columns(wall_now()), empty="No tokens.", name=lambda item: str(item.id))


def revoke_token(token: TokenId, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Revoke a token of the own account at once.

    Examples:
    toban token revoke-own 7
    """
    answer = call("Accounts.RevokeOwnToken", pb.RevokeTokenRequest(id=token, reason=reason))
    show_done(output, answer, f"token {token} revoked", name=lambda _: str(token))
