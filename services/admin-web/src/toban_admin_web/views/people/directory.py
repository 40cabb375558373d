"""What the pages of accounts, groups and rules read: all of them are for people who may change accounts."""

from __future__ import annotations

from toban_admin_web.decide.api_models import AccessRule, Group, Groups, JobPage, Rules, User, UserPage
from toban_admin_web.views.actions import require
from toban_admin_web.views.view_context import read
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

# Accounts that one read returns, and jobs that a field proposes: each is read with its schedules and its newest run.
PROPOSED = 500
PROPOSED_JOBS = 100


def require_accounts() -> None:
    """Raises PERMISSION_DENIED."""
    require(Action.ACCOUNTS)


def user_of(name: str) -> User:
    """The account of this name. Raises NOT_FOUND."""
    cursor = ""
    while True:
        found = read("Accounts.ListUsers", UserPage, page={"limit": PROPOSED, "cursor": cursor})
        for one in found.users:
            if one.name == name:
                return one
        cursor = found.next_cursor
        if not cursor:
            raise TobanError(ErrorCode.NOT_FOUND, f"there is no user {name!r}")


def user_names() -> list[str]:
    """Names of accounts that a field proposes."""
    return [one.name for one in read("Accounts.ListUsers", UserPage, page={"limit": PROPOSED}).users]


def job_names() -> list[str]:
    """Names of jobs that a field proposes; none when they cannot be read, since the name can be typed."""
    try:
        return [one.name for one in read("JobReader.ListJobs", JobPage, page={"limit": PROPOSED_JOBS}).jobs]
    except TobanError:
        return []


def groups() -> list[Group]:
    """All groups."""
    return read("Accounts.ListGroups", Groups).groups


def group_of(name: str) -> Group:
    """The group of this name. Raises NOT_FOUND."""
    for one in groups():
        if one.name == name:
            return one
    raise TobanError(ErrorCode.NOT_FOUND, f"there is no group {name!r}")


def rules(**of: str) -> list[AccessRule]:
    """All rules, or those of one user or group."""
    return read("Accounts.ListRules", Rules, **of).rules
