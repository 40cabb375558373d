"""`toban invite`: tokens with which machines become executors."""

from __future__ import annotations

from typing import Annotated

import typer

from toban_cli.client import call
from toban_cli.completion_values import executor_group_names
from toban_cli.formatting import NOTHING, age, local, wall_now
from toban_cli.messages import joining_pb as pb
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import Column, show, show_done

Group = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="NAME",
        help="The group of the executors (default: the default group).",
        autocompletion=executor_group_names,
    ),
]
Uses = Annotated[int, typer.Option("--uses", min=1, max=1000, help="How many machines may join with it.")]
Hours = Annotated[int, typer.Option("--hours", min=1, max=168, help="How long it is good.")]
Number = Annotated[int, typer.Argument(metavar="INVITE", min=1, help="Number of the invite.", show_default=False)]


def add(
    group: Group = "", uses: Uses = 1, hours: Hours = 1, reason: AuditReason = "", output: Output = Format.TABLE
) -> None:
    """Make an invite, with which a machine becomes an executor. It is shown once and stored as a hash.

    Examples:
    toban invite add
    toban invite add --group pci --uses 5 --hours 24
    """
    request = pb.AddInviteRequest(group=group, uses=uses, valid_seconds=hours * 3600, reason=reason)
    answer = call("Invites.AddInvite", request)
    made = answer.invite
    until = local(made.ends_at, wall_now())
    machines = "one machine" if made.uses == 1 else f"{made.uses} machines"
    about = f"invite {made.id}: {machines} for group {made.group}, until {until}; it is not shown again"
    show_done(
        output, answer, [answer.token, about, "there: toban executor join URL TOKEN"], name=lambda item: item.token
    )


def list_invites(output: Output = Format.TABLE) -> None:
    """List invites, the newest first: which group, how many machines have joined.

    Examples:
    toban invite list
    """
    now = wall_now()
    columns = [
        Column("INVITE", lambda item: str(item.id)),
        Column("GROUP", lambda item: item.group),
        Column("STATUS", lambda item: item.status),
        Column("USED", lambda item: f"{item.used}/{item.uses}"),
        Column("ENDS", lambda item: local(item.ends_at, now)),
        Column("LAST MACHINE", lambda item: item.last_machine or NOTHING, loose=True),
        Column("BY", lambda item: item.created_by, loose=True),
    ]
    wide = [
        Column("CREATED", lambda item: age(item.created_at, now)),
        Column("REASON", lambda item: item.reason or NOTHING, loose=True),
    ]
    found = call("Invites.ListInvites", pb.ListInvitesRequest()).invites
    empty = "No invites. Make one with `toban invite add`."
    show(output, found, table=columns, wide=wide, empty=empty, name=lambda item: str(item.id))


def delete(invite: Number, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """End an invite. Executors that have joined with it stay.

    Examples:
    toban invite delete 3
    """
    answer = call("Invites.RemoveInvite", pb.RemoveInviteRequest(id=invite, reason=reason))
    show_done(output, answer, [f"invite {invite} is deleted"], name=lambda _: str(invite))
