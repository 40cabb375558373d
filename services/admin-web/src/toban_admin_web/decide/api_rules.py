"""Which method of the coordinators each route of the API is, and so which action. A route without a row here stops the start.

The action decides early who is refused; the coordinators decide again, with the person's rules (toban_transport.person_rules).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from toban_domain.access import MINIMUM, Action, Role
from toban_domain.errors import ErrorCode, TobanError
from toban_transport.person_rules import PERSON_RULES, About

PREFIX = "/api/v1"
AUTHENTICATE = "Accounts.Authenticate"
"""Asks whose credential it is, so no person is needed for it."""
DOCS = "/api/docs"
"""A page for browsers, and so none of the routes."""


class Open(StrEnum):
    """Routes that no action guards."""

    SIGNED_IN = "signed-in"
    """For everybody with a good credential."""
    PUBLIC = "public"
    """For everybody: nothing of the installation is in the answer."""


@dataclass(frozen=True, slots=True)
class RouteRule:
    """`method` such as JobReader.GetJob; "" where none is called."""

    needs: Action | Open
    method: str
    seconds: float | None = None
    """Time limit of one call for a read that can take long at a coordinator that works; None: as all, at each coordinator in turn."""


# A filter with few hits reads the whole audit log, and a check reads a part of it: no other coordinator would be faster.
SLOW_READS: Mapping[str, float] = {
    "Operations.ListAudit": 25.0,
    "Operations.VerifyAudit": 60.0,
    "Operations.Diagnose": 10.0,
}
"""Method → seconds."""


def _rules(service: str, routes: Mapping[str, str]) -> dict[str, RouteRule]:
    """The action of each route is that of its method, so both decide by one rule."""
    return {route: _rule(f"{service}.{method}") for route, method in routes.items()}


def _rule(method: str) -> RouteRule:
    """Raises KeyError for a method without a row in PERSON_RULES."""
    if method == AUTHENTICATE:
        return RouteRule(Open.SIGNED_IN, method)
    person = PERSON_RULES[f"/toban_proto.v1.{method.replace('.', '/')}"]
    needs = Open.SIGNED_IN if person.about is About.OWN else person.action
    return RouteRule(needs, method, SLOW_READS.get(method))


ROUTE_RULES: Mapping[str, RouteRule] = {
    "GET /openapi.json": RouteRule(Open.PUBLIC, ""),
    **_rules(
        "Accounts",
        {
            "GET /session": "Authenticate",
            "POST /account/password": "ChangeOwnPassword",
            "GET /account/sessions": "ListOwnSessions",
            "DELETE /account/sessions/{id}": "EndOwnSession",
            "GET /account/tokens": "ListOwnTokens",
            "POST /account/tokens": "CreateOwnToken",
            "DELETE /account/tokens/{id}": "RevokeOwnToken",
        },
    ),
    **_rules(
        "JobReader",
        {
            "GET /jobs": "ListJobs",
            "GET /jobs/{name}": "GetJob",
            "GET /jobs/{name}/versions": "ListJobVersions",
            "GET /jobs/{name}/days": "GetJobDays",
            "GET /schedules": "ListSchedules",
            "GET /schedules/{name}": "GetSchedule",
            "GET /schedules/{name}/next": "NextSlots",
            "GET /schedules/{name}/fires": "ListFires",
            "GET /triggers": "ListTriggers",
            "GET /triggers/{name}": "ListTriggers",
            "GET /events": "ListEvents",
            "GET /runs": "ListRuns",
            "GET /runs/{id}": "GetRun",
            "GET /runs/{id}/why": "ExplainRun",
            "GET /runs/{id}/stream": "WatchRun",
            "GET /runs/{id}/logs": "GetReadTicket",
            "GET /jobs/{name}/logs": "ListRuns",
            "GET /runs/{id}/logs/stream": "GetRun",
            "GET /executors": "ListExecutors",
            "GET /cluster": "GetCluster",
            "GET /overview": "GetOverview",
        },
    ),
    **_rules(
        "Operations",
        {
            "GET /settings": "ListSettings",
            "GET /settings/{name}": "ListSettings",
            "GET /executor-groups": "ListExecutorGroups",
            "GET /executor-groups/{name}": "ListExecutorGroups",
            "GET /limits": "ListLimits",
            "GET /limits/{limit}": "GetLimit",
        },
    ),
    **_rules(
        "JobControl",
        {
            "POST /jobs/{name}/runs": "StartRuns",
            "POST /runs": "StartRuns",
            "POST /runs/{id}/rerun": "RerunRun",
            "POST /runs/rerun": "RerunRuns",
            "POST /runs/{id}/notes": "NoteRun",
            "POST /events": "EmitEvent",
        },
    ),
    **_rules("Operations", {"POST /limits/{limit}/signal": "SignalLimit"}),
    **_rules(
        "JobControl",
        {
            "POST /runs/{id}/cancel": "CancelRun",
            "POST /runs/cancel": "CancelRuns",
            "POST /runs/{id}/declare-lost": "DeclareRunLost",
        },
    ),
    **_rules(
        "JobControl",
        {
            "POST /apply": "Apply",
            "PUT /jobs/{name}": "Apply",
            "PUT /schedules/{name}": "Apply",
            "PUT /triggers/{name}": "Apply",
            "DELETE /jobs/{name}": "DeleteJob",
            "DELETE /schedules/{name}": "DeleteSchedule",
            "DELETE /triggers/{name}": "DeleteTrigger",
            "POST /jobs/{name}/disable": "DisableJob",
            "POST /jobs/{name}/enable": "EnableJob",
            "POST /schedules/{name}/pause": "PauseSchedule",
            "POST /schedules/{name}/resume": "ResumeSchedule",
        },
    ),
    **_rules("Operations", {"GET /secrets": "ListSecrets"}),
    **_rules(
        "Operations",
        {
            "GET /audit": "ListAudit",
            "GET /audit/verify": "VerifyAudit",
            "GET /cluster/diagnosis": "Diagnose",
            "POST /cluster/demote": "DemoteLeader",
            "PUT /settings/{name}": "UpdateSetting",
            "POST /executors/{worker_id}/drain": "DrainExecutor",
            "POST /executors/{worker_id}/undrain": "UndrainExecutor",
            "POST /executors/{worker_id}/detach": "DetachExecutor",
            "PUT /executor-groups/{name}": "SetExecutorGroup",
            "DELETE /executor-groups/{name}": "RemoveExecutorGroup",
            "PUT /limits/{limit}": "SetLimit",
            "DELETE /limits/{limit}": "SetLimit",
            "POST /limits/{limit}/breaker": "SetBreaker",
            "PUT /secrets/{name}": "SetSecret",
            "DELETE /secrets/{name}": "RemoveSecret",
            "POST /secrets/rotate": "RotateSecrets",
        },
    ),
    **_rules(
        "ExternalWork",
        {
            "POST /external-work/claims": "Claim",
            "POST /external-work/heartbeats": "Heartbeat",
            "POST /external-work/progress": "UpdateProgress",
            "POST /external-work/complete": "Complete",
            "POST /external-work/fail": "Fail",
            "POST /external-work/acknowledge-cancel": "AcknowledgeCancel",
        },
    ),
    **_rules("Hooks", {"GET /hooks": "ListHooks", "GET /hooks/{name}": "ListHooks"}),
    **_rules(
        "Hooks",
        {"PUT /hooks/{name}": "SetHook", "DELETE /hooks/{name}": "RemoveHook", "POST /hooks/{name}/test": "TestHook"},
    ),
    **_rules(
        "Webhooks",
        {
            "GET /webhooks": "ListWebhooks",
            "GET /webhooks/{name}": "ListWebhooks",
            "GET /deliveries": "ListDeliveries",
        },
    ),
    **_rules(
        "Webhooks",
        {
            "PUT /webhooks/{name}": "SetWebhook",
            "DELETE /webhooks/{name}": "RemoveWebhook",
            "POST /webhooks/{name}/test": "TestWebhook",
            "POST /webhooks/{name}/redeliver": "Redeliver",
        },
    ),
    **_rules(
        "Accounts",
        {
            "GET /users": "ListUsers",
            "POST /users": "AddUser",
            "PATCH /users/{name}": "UpdateUser",
            "DELETE /users/{name}": "DeleteUser",
            "POST /users/{user}/end-sessions": "EndSessions",
            "PUT /users/{name}/identity": "LinkUser",
            "DELETE /users/{name}/identity": "UnlinkUser",
            "GET /users/{user}/may": "May",
            "GET /groups": "ListGroups",
            "PUT /groups/{name}": "UpdateGroup",
            "DELETE /groups/{name}": "UpdateGroup",
            "PUT /groups/{name}/members/{user}": "UpdateGroup",
            "DELETE /groups/{name}/members/{user}": "UpdateGroup",
            "GET /rules": "ListRules",
            "POST /rules": "AddRule",
            "DELETE /rules/{id}": "RemoveRule",
            "GET /tokens": "ListTokens",
            "POST /tokens": "CreateToken",
            "DELETE /tokens/{id}": "RevokeToken",
        },
    ),
}
"""Method and path below PREFIX → rule."""


def is_api(path: str) -> bool:
    """Whether a request is for the API, whatever its route."""
    return path == "/api" or (path.startswith("/api/") and path != DOCS)


def is_for_programs(path: str) -> bool:
    """Whether a request is not of a browser: its errors are problem documents, and another gate than that of sessions admits it."""
    return is_api(path) or path.startswith("/hooks/")


def may_try(role: str, needs: Action | Open) -> bool:
    """Whether a person whose highest role is `role` ("" = none) can be allowed this at all."""
    if not isinstance(needs, Action):
        return True
    return role in set(Role) and Role(role).rank >= MINIMUM[needs].rank


def check_worker(rule: RouteRule, worker_type: str) -> None:
    """Raises PERMISSION_DENIED for a token that is for external steps of one type, at a route that is for something else."""
    if worker_type and rule.method != AUTHENTICATE and not rule.method.startswith("ExternalWork."):
        message = f"the token is for external work of worker_type {worker_type!r} only; use another token"
        raise TobanError(ErrorCode.PERMISSION_DENIED, message)


def check_routes(served: Collection[str]) -> None:
    """Raises CONFIG_INVALID when a served route has no rule, or a rule has no route."""
    missing, stale = sorted(set(served) - set(ROUTE_RULES)), sorted(set(ROUTE_RULES) - set(served))
    if missing:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"no rule in ROUTE_RULES for {', '.join(missing)}; add one")
    if stale:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"ROUTE_RULES names no route: {', '.join(stale)}; remove it")
