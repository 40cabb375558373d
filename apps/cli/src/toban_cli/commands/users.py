"""`toban user`: accounts, groups, rules, and what a user may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.access_options import (
    ForJob,
    ForLabels,
    ForScope,
    RoleName,
    UserName,
    format_selector,
    read_secret,
    selector,
)
from toban_cli.client import call, collect, connect
from toban_cli.formatting import NOTHING, age, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Limit, Output, check_given_name, check_name
from toban_cli.output import Column, show, show_data, show_done

if TYPE_CHECKING:
    from datetime import datetime

GroupName = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False, callback=check_name)
]
IsGroup = Annotated[bool, typer.Option("--group", help="The name is that of a group.")]
DisplayName = Annotated[str, typer.Option("--display-name", metavar="TEXT", help="How people know this account.")]
WithPassword = Annotated[
    bool, typer.Option("--password", help="Ask for a password, or take the first line of standard input.")
]
Change = Annotated[str, typer.Argument(metavar="add|delete|join|leave", help="What to change.", show_default=False)]
RuleId = Annotated[int, typer.Argument(metavar="RULE", min=1, help="Number of the rule.", show_default=False)]
ActionName = Annotated[
    str,
    typer.Argument(
        metavar="ACTION", help="view, run, cancel, edit, operate (the cluster) or accounts.", show_default=False
    ),
]
OnJob = Annotated[str, typer.Argument(metavar="[JOB]", help="The job that it is about.")]
DENIED = 1


def bootstrap(output: Output = Format.TABLE) -> None:
    """Make a one-time secret for the first administrator. It is good for an hour; a newer one replaces it.

    Examples:
    toban user bootstrap
    """
    answer = call("Accounts.CreateBootstrapLink", pb.CreateBootstrapLinkRequest())
    until = local(answer.ends_at, wall_now())
    lines = [answer.secret, f"use it once, until {until}: at /first of the site, or with toban user first NAME"]
    show_done(output, answer, lines, name=lambda item: item.secret)


def state(output: Output = Format.TABLE) -> None:
    """Show whether there is an administrator who can sign in.

    Examples:
    toban user state
    """
    answer = call("Accounts.GetAccountsState", pb.GetAccountsStateRequest())
    text = "there is an administrator" if answer.has_administrator else "no administrator yet: toban user bootstrap"
    show_done(output, answer, text, name=lambda item: str(item.has_administrator).lower())


def whoami(output: Output = Format.TABLE) -> None:
    """Show as whom this command acts.

    Examples:
    toban user whoami
    """
    with connect() as client:
        if client.token:
            answer = client.call("Accounts.Authenticate", pb.AuthenticateRequest(token=client.token))
        else:
            answer = pb.AuthenticateResponse(user="certificate admin-cli", role="admin")
    show_done(output, answer, f"{answer.user}, role {answer.role or 'none'}", name=lambda item: item.user)


def first(user: UserName, output: Output = Format.TABLE) -> None:
    """Make the first administrator: asks for the one-time secret and a password, or takes two lines of standard input.

    Examples:
    toban user first ada
    """
    secret = read_secret("One-time secret of `toban user bootstrap`", twice=False)
    request = pb.RedeemBootstrapLinkRequest(secret=secret, user=user, password=read_secret("Password"))
    answer = call("Accounts.RedeemBootstrapLink", request)
    show_done(output, answer, f"{user} is the first administrator", name=lambda _: user)


def list_users(limit: Limit = 100, output: Output = Format.TABLE) -> None:
    """List the accounts by name.

    Examples:
    toban user list -o wide
    """
    with connect() as client:
        found, _ = collect(
            lambda page: client.call("Accounts.ListUsers", pb.ListUsersRequest(page=page)), "users", limit
        )
    table, wide = _user_columns(wall_now())
    show(output, found, table=table, wide=wide, empty="No accounts. Make the first one with `toban user bootstrap`.")


def add(
    user: UserName,
    display_name: DisplayName = "",
    password: WithPassword = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Add an account. It has no rights until a rule or a group gives it some.

    Examples:
    toban user add bob --password
    """
    secret = read_secret("Password") if password else ""
    request = pb.AddUserRequest(name=user, display_name=display_name, password=secret, reason=reason)
    _change("AddUser", request, f"user {user} added; `toban user grant {user} ROLE` gives it rights", output)


def set_password(user: UserName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Set a password. Every session of the account ends.

    Examples:
    toban user password bob
    """
    request = pb.UpdateUserRequest(name=user, password=read_secret("Password"), reason=reason)
    _change("UpdateUser", request, f"user {user} has a new password; its sessions have ended", output)


def enable(user: UserName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Enable an account.

    Examples:
    toban user enable bob
    """
    _change("UpdateUser", pb.UpdateUserRequest(name=user, enabled=True, reason=reason), f"user {user} enabled", output)


def disable(user: UserName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Disable an account: its sessions end and its tokens are refused. Not the last administrator.

    Examples:
    toban user disable bob --reason "left the team"
    """
    _change(
        "UpdateUser", pb.UpdateUserRequest(name=user, enabled=False, reason=reason), f"user {user} disabled", output
    )


def delete(user: UserName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Delete an account with its rules, sessions and tokens. The audit log keeps its name.

    Examples:
    toban user delete bob --reason "left the company"
    """
    _change("DeleteUser", pb.DeleteUserRequest(name=user, reason=reason), f"user {user} deleted", output)


def sign_out(user: UserName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """End every session of an account.

    Examples:
    toban user sign-out bob
    """
    answer = call("Accounts.EndSessions", pb.EndSessionsRequest(user=user, reason=reason))
    show_done(output, answer, f"{answer.ended} sessions of {user} ended", name=lambda _: user)


def list_groups(output: Output = Format.TABLE) -> None:
    """List groups with their members.

    Examples:
    toban user groups
    """
    found = call("Accounts.ListGroups", pb.ListGroupsRequest()).groups
    table = [
        Column("GROUP", lambda item: item.name),
        Column("MEMBERS", lambda item: ", ".join(item.members) or NOTHING, loose=True),
    ]
    show(output, found, table=table, empty="No groups. Add one with `toban user group add NAME`.")


def change_group(
    change: Change,
    group: GroupName,
    user: Annotated[str, typer.Argument(metavar="[USER]", help="Who joins or leaves.", callback=check_given_name)] = "",
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Add or delete a group, or let a user join or leave it.

    Examples:
    toban user group add ops
    toban user group join ops bob
    """
    if (change in ("join", "leave")) != bool(user):
        raise typer.BadParameter("join and leave need a user; add and delete take none", param_hint="USER")
    request = pb.UpdateGroupRequest(name=group, change=change, user=user, reason=reason)
    _change("UpdateGroup", request, f"group {group}: {change} {user}".rstrip(), output)


def list_rules(
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Only those of this user itself.")] = "",
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="Only those of this group.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """List the rules that give or deny rights.

    Examples:
    toban user rules --user bob
    """
    found = call("Accounts.ListRules", pb.ListRulesRequest(user=user, group=group)).rules
    show(output, found, table=_rule_columns(), empty="No rules.", name=lambda item: str(item.id))


def grant(
    name: UserName,
    role: RoleName,
    group: IsGroup = False,
    job: ForJob = "",
    label: ForLabels = None,
    scope: ForScope = "",
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Give a user or group a role, for everything or for some jobs.

    Examples:
    toban user grant bob operator --label team=ops
    toban user grant ops editor --group --scope account:17
    """
    _add_rule(
        "allow", name, role, group=group, selected=selector(job, label or [], scope), reason=reason, output=output
    )


def deny(
    name: UserName,
    role: RoleName,
    group: IsGroup = False,
    job: ForJob = "",
    label: ForLabels = None,
    scope: ForScope = "",
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Deny what needs this role or a higher one. A denial counts more than any grant.

    Examples:
    toban user deny bob operator --job payroll
    """
    _add_rule("deny", name, role, group=group, selected=selector(job, label or [], scope), reason=reason, output=output)


def revoke(rule: RuleId, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Remove a rule. Not the one that makes the last administrator.

    Examples:
    toban user revoke 12
    """
    _change("RemoveRule", pb.RemoveRuleRequest(id=rule, reason=reason), f"rule {rule} removed", output)


def may(
    user: UserName, action: ActionName, job: OnJob = "", scope: ForScope = "", output: Output = Format.TABLE
) -> int:
    """Say whether a user may do something, and which rule decides. The exit code is 1 when not.

    Examples:
    toban user may bob run backup
    toban user may bob operate
    """
    from toban_cli.proto_json import plain

    kind, _, scope_id = scope.partition(":")
    answer = call("Accounts.May", pb.MayRequest(user=user, action=action, job=job, scope=kind, scope_id=scope_id))
    if output.is_data:
        show_data(output, plain(answer))
    else:
        report.echo(f"{'yes' if answer.allowed else 'no'}: {answer.reason}")
    return 0 if answer.allowed else DENIED


def _add_rule(effect: str, name: str, role: str, *, group: bool, selected: Any, reason: str, output: Format) -> None:

    user, group_name = ("", name) if group else (name, "")
    rule = pb.AccessRule(user=user, group=group_name, effect=effect, role=role, selector=selected)
    answer = call("Accounts.AddRule", pb.AddRuleRequest(rule=rule, reason=reason))
    line = f"rule {answer.id}: {effect} {role} for {format_selector(selected)}"
    show_done(output, answer, line)


def _change(method: str, request: Any, line: str, output: Format) -> None:

    answer = call(f"Accounts.{method}", request)
    name = request.name if hasattr(request, "name") else str(request.id)
    show_done(output, answer, line, name=lambda _: name)


def _user_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("USER", lambda item: item.name),
        Column("ROLE", lambda item: item.role or NOTHING),
        Column("ENABLED", lambda item: "yes" if item.enabled else "no"),
        Column("GROUPS", lambda item: ", ".join(item.groups) or NOTHING, loose=True),
        Column("SEEN", lambda item: age(item.last_seen_at, now)),
    ]
    wide = [
        Column("NAME", lambda item: item.display_name or NOTHING, loose=True),
        Column("PASSWORD", lambda item: "yes" if item.has_password else "no"),
        Column("IDENTITY", lambda item: ", ".join(map(_identity, item.identities)) or NOTHING, loose=True),
        Column("CREATED", lambda item: age(item.created_at, now)),
        Column("BY", lambda item: item.created_by or NOTHING, loose=True),
    ]
    return table, wide


def _identity(item: Any) -> str:
    return f"{item.subject} of {item.issuer}"


def _rule_columns() -> list[Column]:
    return [
        Column("RULE", lambda item: str(item.id)),
        Column("OF", lambda item: f"user {item.user}" if item.user else f"group {item.group}"),
        Column("EFFECT", lambda item: item.effect),
        Column("ROLE", lambda item: item.role),
        Column("FOR", lambda item: format_selector(item.selector), loose=True),
        Column("BY", lambda item: item.created_by or NOTHING, loose=True),
    ]
