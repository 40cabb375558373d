"""`toban user link` and `unlink`: who an account is at an OpenID provider."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from toban_cli.access_options import UserName
from toban_cli.client import call
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import show_done

Issuer = Annotated[
    str,
    typer.Option(
        "--issuer",
        metavar="URL",
        help="Issuer of the OpenID provider; without it the one of the coordinators, which alone can be linked.",
    ),
]
Subject = Annotated[
    str, typer.Option("--subject", metavar="SUB", help="`sub` of the person there.", show_default=False)
]


def link(
    user: UserName, subject: Subject, issuer: Issuer = "", reason: AuditReason = "", output: Output = Format.TABLE
) -> None:
    """Let a person of the OpenID provider sign in to an account. The page that refuses the person shows the subject.

    Examples:
    toban user link bob --subject 8f3c2a
    """
    request = pb.LinkUserRequest(name=user, issuer=issuer, subject=subject, reason=reason)
    _change("LinkUser", request, f"user {user} is linked to subject {subject}", output)


def unlink(user: UserName, issuer: Issuer = "", reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Unlink an account from the OpenID provider: its sessions end, the roles from there are removed, and the person gets no new account.

    A password and API tokens of the account stay good; `toban user disable` ends all of it.

    Examples:
    toban user unlink bob --reason "is another person now"
    """
    line = f"user {user} unlinked; the person signs in with the provider when `toban user link` is used again, API tokens stay good"
    _change("UnlinkUser", pb.UnlinkUserRequest(name=user, issuer=issuer, reason=reason), line, output)


def _change(method: str, request: Any, line: str, output: Format) -> None:

    answer = call(f"Accounts.{method}", request)
    show_done(output, answer, line, name=lambda _: request.name)
