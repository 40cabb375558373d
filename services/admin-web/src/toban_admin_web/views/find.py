"""What the palette finds by a part of the name: jobs, schedules, and the rest that the person may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flask import Blueprint, Response, g, jsonify, request, url_for

from toban_admin_web.decide.api_models import (
    Executors,
    Hooks,
    JobPage,
    Limits,
    SchedulePage,
    Secrets,
    TriggerPage,
    UserPage,
    Webhooks,
)
from toban_admin_web.decide.navigation import groups_for
from toban_admin_web.views.view_context import read
from toban_domain.errors import ErrorCode, TobanError

# Of each kind, the names that begin with the text or have it soonest.
SHOWN = 6
# Names come in their order, without what the person may not see: the ones that fit best may be far from the first.
READ = 500
MAX_TEXT = 200
_NO_LIST = frozenset({ErrorCode.PERMISSION_DENIED, ErrorCode.UNIMPLEMENTED})

Found = Iterable[tuple[str, ...]]
"""Name, path, and the parts of the path of what can be done with it."""

views = Blueprint("find", __name__)


@views.get("/find")
def show() -> Response:
    """Kind, name, path and actions of what has ?q= in its name, as JSON."""
    text = request.args.get("q", "").strip()[:MAX_TEXT]
    seen = {link.endpoint for group in groups_for(g.person.role) for link in group.links}
    found = [
        {"kind": kind, "name": name, "path": path, "acts": acts}
        for kind, (listed, names) in _KINDS.items()
        if text and listed in seen
        for name, path, *acts in _nearest(text, names)
    ]
    return jsonify(found=found)


def _nearest(text: str, names: Callable[[str], Found]) -> Found:
    """None of a list that is refused to the person, or that an earlier release does not have: the others are found."""
    try:
        having = [one for one in names(text) if text.lower() in one[0].lower()]
    except TobanError as error:
        if error.code not in _NO_LIST:
            raise
        return []
    return sorted(having, key=lambda one: (one[0].lower().find(text.lower()), one))[:SHOWN]


def _jobs(text: str) -> Found:
    for one in read("JobReader.ListJobs", JobPage, name=text, page={"limit": READ}).jobs:
        yield one.name, url_for("jobs.show", name=one.name), "run", "enable" if one.disabled_at else "disable"


def _schedules(text: str) -> Found:
    for one in read("JobReader.ListSchedules", SchedulePage, name=text, page={"limit": READ}).schedules:
        acts = ["pause" if one.status == "active" else "resume"] if one.enabled else []
        yield one.name, url_for("schedules.show", name=one.name), *acts


def _triggers(_text: str) -> Found:
    for one in read("JobReader.ListTriggers", TriggerPage, page={"limit": READ}).triggers:
        yield one.name, url_for("events.trigger", name=one.name)


def _executors(_text: str) -> Found:
    for one in read("JobReader.ListExecutors", Executors).executors:
        yield one.node_id, url_for("executors.show", _anchor=f"executor-{one.worker_id}")


def _limits(_text: str) -> Found:
    for one in read("Operations.ListLimits", Limits).limits:
        yield one.name, url_for("limits.show", name=one.name)


def _webhooks(_text: str) -> Found:
    for one in read("Webhooks.ListWebhooks", Webhooks).webhooks:
        yield one.name, url_for("webhooks.show", name=one.name)


def _hooks(_text: str) -> Found:
    for one in read("Hooks.ListHooks", Hooks).hooks:
        yield one.name, url_for("incoming.show", name=one.name)


def _users(_text: str) -> Found:
    for one in read("Accounts.ListUsers", UserPage, page={"limit": READ}).users:
        yield one.name, url_for("users.show", name=one.name)


def _secrets(_text: str) -> Found:
    for one in read("Operations.ListSecrets", Secrets).secrets:
        yield one.name, url_for("secrets.listed", _anchor=one.name)


# Each with the page that a person must be offered.
_KINDS = {
    "jobs": ("jobs.listed", _jobs),
    "schedules": ("schedules.listed", _schedules),
    "triggers": ("events.triggers", _triggers),
    "executors": ("executors.show", _executors),
    "limits": ("limits.listed", _limits),
    "webhooks": ("webhooks.listed", _webhooks),
    "hooks": ("incoming.listed", _hooks),
    "users": ("users.listed", _users),
    "secrets": ("secrets.listed", _secrets),
}
