"""What every action of a person shares: who may, the reason, the call, what a refusal shows, and the way back.

Each action has a page of its own, which shows what it is about and asks for a reason. A form that was sent leads back to the page it came from; a
refused one is shown again, as it was filled in, with what is wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from flask import Response, g, render_template, request

from toban_admin_web.decide.api_rules import may_try
from toban_admin_web.decide.problems import status_of
from toban_admin_web.views.people.session_gate import see_other
from toban_domain.access import MAX_REASON, MINIMUM, Action
from toban_domain.errors import ErrorCode, TobanError

# The end of the key of a form with two buttons, for the one that starts another run than the other.
AS_IT_WAS = "-same"
DONE = (
    "canceled",
    "killed",
    "declared_lost",
    "noted",
    "rerun",
    "started",
    "paused",
    "paused_idle",
    "resumed",
    "job_deleted",
    "applied",
    "applied_unchanged",
    "spread",
    "job_disabled",
    "job_disabled_idle",
    "job_enabled",
    "job_stays_disabled",
    "limit_set",
    "limit_reset",
    "breaker_opened",
    "breaker_closed",
    "signaled",
    "setting_changed",
    "drained",
    "undrained",
    "detached",
    "demoted",
    "archive_asked",
    "user_added",
    "role_changed",
    "password_set",
    "user_linked",
    "user_unlinked",
    "sessions_ended",
    "user_disabled",
    "user_enabled",
    "user_deleted",
    "group_added",
    "member_joined",
    "member_left",
    "group_deleted",
    "rule_added",
    "rule_removed",
    "secret_set",
    "secret_deleted",
    "invite_deleted",
    "event_emitted",
    "event_duplicate",
    *(f"webhook_{done}" for done in ("made", "changed", "tested", "disabled", "enabled", "removed")),
    *("redelivered", "redelivered_none"),
    *(f"hook_{done}" for done in ("made", "changed", "dropped", "disabled", "enabled", "removed")),
)
"""What a page that an action leads to may report, as `?done=`."""

T = TypeVar("T")


class Refused(Exception):
    """A form that is not sent on. `problem` names a text action.PROBLEM."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def require(action: Action) -> None:
    """Refuses people whose role never allows the action, before they fill in a form. The coordinators decide, with all their rules.

    Raises PERMISSION_DENIED.
    """
    if not may_try(g.person.role, action):
        raise TobanError(
            ErrorCode.PERMISSION_DENIED,
            f"this needs role {MINIMUM[action].value}; {g.person.user} has {g.person.role or 'no role'}",
            detail={"user": g.person.user},
        )


def given_reason(*, required: bool = True) -> str:
    """The reason in the form. Raises Refused when one is required and there is none, or it is too long."""
    reason = request.form.get("reason", "").strip()
    if required and not reason:
        raise Refused("no_reason")
    if len(reason) > MAX_REASON:
        raise Refused("long_reason")
    return reason


def form_key() -> str:
    """The name of one form: sent twice, it starts one run. One that was refused keeps it, since the first sending may have had its effect."""
    return given_key().removesuffix(AS_IT_WAS) if request.method == "POST" else new_key()


def new_key() -> str:
    """The name of a form that was never sent."""
    return f"site-{secrets.token_hex(12)}"


def given_key() -> str:
    """The name of the form that was sent."""
    key = request.form.get("key", "")
    return key if key.startswith("site-") and key.isascii() and key.isprintable() and len(key) <= 64 else new_key()


def form(template: str, status: int = 200, **values: Any) -> Response:
    """The page of an action."""
    # That of a link back to what was before an action is in its query.
    empty = {"problem": "", "message": "", "reason": request.values.get("reason", "")}
    return Response(render_template(f"{template}.html", **(empty | values)), status)


def confirmed(work: Callable[[], str], show: Callable[..., Response]) -> Response:
    """Does `work` and goes on to the path that it returns. What is refused is shown by `show(status, problem=, message=)`."""
    try:
        return see_other(work())
    except Refused as refusal:
        return show(400, problem=refusal.problem)
    except TobanError as error:
        if error.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED):
            raise
        return show(status_of(error), problem="refused", message=error.message)
