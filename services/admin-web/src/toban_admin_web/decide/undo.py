"""The way back from an action that was just done: the form of its reverse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from toban_domain.access import Action

_VALUE = re.compile(r"-1|[0-9]{1,9}", re.ASCII)


class Undo(NamedTuple):
    """Endpoint and parameters of a form, and who may send it."""

    form: str
    values: Mapping[str, str]
    needs: Action


class _Reverse(NamedTuple):
    # `page` names what was changed by its own parameter `name`; another page has it as `?of=`.
    form: str
    page: str
    needs: Action
    verb: str = ""
    parameter: str = "name"


# By what a page reports as `?done=`.
_REVERSE: Mapping[str, _Reverse] = {
    "paused": _Reverse("job_actions.ask_resume", "schedules.show", Action.EDIT),
    "paused_idle": _Reverse("job_actions.ask_resume", "schedules.show", Action.EDIT),
    "resumed": _Reverse("job_actions.ask_pause", "schedules.show", Action.EDIT),
    "job_disabled": _Reverse("job_actions.ask_enable", "jobs.show", Action.EDIT),
    "job_disabled_idle": _Reverse("job_actions.ask_enable", "jobs.show", Action.EDIT),
    "job_enabled": _Reverse("job_actions.ask_disable", "jobs.show", Action.EDIT),
    "drained": _Reverse("cluster_actions.ask_undrain", "", Action.OPERATE, parameter="worker_id"),
    "undrained": _Reverse("cluster_actions.ask_drain", "", Action.OPERATE, parameter="worker_id"),
    "limit_set": _Reverse("limits.ask", "limits.show", Action.OPERATE, "reset"),
    "limit_reset": _Reverse("limits.ask", "limits.show", Action.OPERATE, "set"),
    "breaker_opened": _Reverse("limits.ask", "limits.show", Action.OPERATE, "close"),
    "breaker_closed": _Reverse("limits.ask", "limits.show", Action.OPERATE, "open"),
    "webhook_disabled": _Reverse("webhooks.ask", "webhooks.show", Action.OPERATE, "enable"),
    "webhook_enabled": _Reverse("webhooks.ask", "webhooks.show", Action.OPERATE, "disable"),
    "hook_disabled": _Reverse("incoming.ask", "incoming.show", Action.OPERATE, "enable"),
    "hook_enabled": _Reverse("incoming.ask", "incoming.show", Action.OPERATE, "disable"),
    "user_disabled": _Reverse("users.ask", "users.show", Action.ACCOUNTS, "enable"),
    "user_enabled": _Reverse("users.ask", "users.show", Action.ACCOUNTS, "disable"),
}


def undo_of(done: str, page: str, given: Mapping[str, str]) -> Undo | None:
    """The reverse of `done`, as the endpoint `page` with the parameters `given` reports it; None when it has none, or nothing is named."""
    found = _REVERSE.get(done)
    if found is None:
        return None
    of = given.get("name" if page == found.page else "of", "")
    if not of or (found.parameter == "worker_id" and not (of.isascii() and of.isdigit() and len(of) < 19)):
        return None
    values = {found.parameter: of}
    if found.verb:
        values["verb"] = found.verb
    if done in ("limit_set", "limit_reset"):
        # The value that an operator had set before; without one a new value is taken away again.
        was = given.get("was", "")
        if _VALUE.fullmatch(was):
            values |= {"verb": "set", "value": was}
        elif was or done == "limit_reset":
            return None
    if page == "jobs.show" and found.page == "schedules.show":
        values["back"] = "job"
    return Undo(found.form, values, found.needs)
