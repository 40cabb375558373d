"""Which route of REST each method is, and how its request is written there. A test holds both against docs/openapi.json."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from toban_cli.options import MAX_REASON
from toban_cli.rest.http import Pairs
from toban_domain.errors import ErrorCode, TobanError

Fields = dict[str, Any]
_PARAMETER = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`path` is below /api/v1, with {fields} of the request; the other fields are its query or, with POST, PUT and PATCH, its body."""

    verb: str
    path: str
    always: tuple[str, ...] = ()
    """Numbers and truth values that are sent also when they are 0 or false."""
    repeatable: bool = False
    """Sent twice it has the effect of once: it reads, or the request has a key."""
    inside: str = ""
    """The field of the method's answer that the answer of the route is."""
    in_query: bool = False
    """A PUT or POST that takes no body."""
    version: str = ""
    """The field that is sent as If-Match."""
    adapt: Callable[[Fields], Fields] = field(default=dict)
    """The request's own fields → those of the route."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The fields of the request that are in the path."""
        return tuple(_PARAMETER.findall(self.path))

    def send(self, fields: Fields) -> Sent:
        """The request for these fields. Raises INVALID_ARGUMENT for a value that REST cannot carry."""
        given = self.adapt({**dict.fromkeys(self.always, 0), **fields})
        if "reason" in given:
            # Coordinators cut it; the site refuses more.
            given["reason"] = given["reason"].strip()[:MAX_REASON]
        path = _PARAMETER.sub(lambda found: _path_part(found[1], given.pop(found[1], "")), self.path)
        version = given.pop(self.version, None) if self.version else None
        headers = {} if version is None else {"If-Match": f'"{version}"'} if version else {"If-None-Match": "*"}
        if self.in_query or self.verb in ("GET", "DELETE"):
            return Sent(route=self, path=path, query=_query(given), headers=headers)
        return Sent(route=self, path=path, query=[], headers=headers, body=given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as it goes out."""

    route: Route
    path: str
    query: Pairs
    headers: Mapping[str, str]
    body: Fields | None = None

    def encoded(self) -> bytes | None:
        """The body, also an empty object; None for routes that take none."""
        return None if self.body is None else json.dumps(self.body, ensure_ascii=False).encode()


def _path_part(name: str, value: Any) -> str:
    """A value as one part of a path. Raises INVALID_ARGUMENT for one that would lead to another route, as an empty one does."""
    text = str(value)
    if text in ("", ".", ".."):
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name}: {text!r} is not a name; give the name of an object")
    return quote(text, safe="")


def _query(fields: Fields) -> Pairs:
    pairs: Pairs = []
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            pairs.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
    return pairs


def _paged(fields: Fields) -> Fields:
    page = fields.pop("page", {})
    return {**fields, **page}


def _run_filter(fields: Fields) -> Fields:
    """The fields of ListRunsRequest as the API names them."""
    names = {"states": "state", "active_from": "since", "active_until": "until", "include_ahead": "ahead"}
    found = {names.get(name, name): value for name, value in _paged(fields).items()}
    if labels := found.pop("labels", None):
        found["label"] = [f"{key}={value}" for key, value in labels.items()]
    return found


def _many_runs(fields: Fields) -> Fields:
    chosen = _run_filter(fields.get("filter", {}))
    chosen.pop("limit", None)
    return {**fields, "filter": chosen}


def _manifests(fields: Fields) -> Fields:
    documents = []
    for one in fields["manifests"]:
        condition = {"expect_version": one["expect_version"]} if "expect_version" in one else {}
        documents.append({**json.loads(one["json"]), **condition})
    return {**fields, "manifests": documents}


def _rule(fields: Fields) -> Fields:
    return {**fields.pop("rule"), **fields}


def _group(fields: Fields) -> Fields:
    """Version 0 is that of a group that must not be there."""
    made = {"version": 0} if fields.pop("create", False) else {}
    return {**fields, **made}


def _secret(fields: Fields) -> Fields:
    import base64

    value = base64.b64decode(fields["value"])
    try:
        return {**fields, "value": value.decode()}
    except UnicodeDecodeError:
        message = "the value is no text in UTF-8, and REST carries text only; encode it, or use `toban --direct`"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None


def _without(*names: str) -> Callable[[Fields], Fields]:
    return lambda fields: {name: value for name, value in fields.items() if name not in names}


def _get(path: str, **given: Any) -> Route:
    return Route(verb="GET", path=path, repeatable=True, **{"adapt": _paged, **given})


def _post(path: str, **given: Any) -> Route:
    return Route(verb="POST", path=path, **given)


def _put(path: str, **given: Any) -> Route:
    return Route(verb="PUT", path=path, **given)


def _delete(path: str, **given: Any) -> Route:
    return Route(verb="DELETE", path=path, **given)


ROUTES: Mapping[str, Route] = {
    "JobReader.ListJobs": _get("/jobs"),
    "JobReader.GetJob": _get("/jobs/{name}"),
    "JobReader.ListJobVersions": _get("/jobs/{name}/versions"),
    "JobReader.GetJobDays": _get("/jobs/{name}/days"),
    "JobReader.ListSchedules": _get("/schedules"),
    "JobReader.GetSchedule": _get("/schedules/{name}"),
    "JobReader.NextSlots": _get("/schedules/{name}/next"),
    "JobReader.ListFires": _get("/schedules/{schedule}/fires"),
    "JobReader.ListTriggers": _get("/triggers"),
    "JobReader.ListTriggers named": _get("/triggers/{name}", inside="triggers"),
    "JobReader.ListEvents": _get("/events"),
    "JobReader.ListRuns": _get("/runs", adapt=_run_filter),
    "JobReader.GetRun": _get("/runs/{id}"),
    "JobReader.ExplainRun": _get("/runs/{id}/why"),
    "JobReader.ListExecutors": _get("/executors"),
    "JobReader.GetCluster": _get("/cluster"),
    "JobReader.GetOverview": _get("/overview"),
    "JobControl.Apply": _post("/apply", adapt=_manifests),
    "JobControl.DeleteJob": _delete("/jobs/{name}"),
    "JobControl.DeleteSchedule": _delete("/schedules/{name}"),
    "JobControl.DeleteTrigger": _delete("/triggers/{name}"),
    "JobControl.DisableJob": _post("/jobs/{name}/disable"),
    "JobControl.EnableJob": _post("/jobs/{name}/enable"),
    "JobControl.PauseSchedule": _post("/schedules/{name}/pause"),
    "JobControl.ResumeSchedule": _post("/schedules/{name}/resume"),
    "JobControl.StartRuns": _post("/runs", repeatable=True),
    "JobControl.RerunRun": _post("/runs/{id}/rerun", repeatable=True),
    "JobControl.RerunRuns": _post("/runs/rerun", repeatable=True, adapt=_many_runs),
    "JobControl.CancelRun": _post("/runs/{id}/cancel"),
    "JobControl.CancelRuns": _post("/runs/cancel", adapt=_many_runs),
    "JobControl.DeclareRunLost": _post("/runs/{id}/declare-lost"),
    "JobControl.NoteRun": _post("/runs/{id}/notes"),
    "JobControl.EmitEvent": _post("/events", repeatable=True),
    "Operations.ListSettings": _get("/settings"),
    "Operations.UpdateSetting": _put("/settings/{name}", version="version"),
    "Operations.ListLimits": _get("/limits"),
    "Operations.GetLimit": _get("/limits/{name}"),
    "Operations.SetLimit": _put("/limits/{name}", always=("limit",)),
    "Operations.SetLimit reset": _delete("/limits/{name}", adapt=_without("reset", "limit")),
    "Operations.SetBreaker": _post("/limits/{name}/breaker", adapt=lambda given: {**given, "open": "open" in given}),
    "Operations.SignalLimit": _post("/limits/{name}/signal"),
    "Operations.ListSecrets": _get("/secrets"),
    "Operations.SetSecret": _put("/secrets/{name}", adapt=_secret),
    "Operations.RemoveSecret": _delete("/secrets/{name}"),
    "Operations.RotateSecrets": _post("/secrets/rotate"),
    "Operations.ListExecutorGroups": _get("/executor-groups"),
    "Operations.SetExecutorGroup": _put("/executor-groups/{name}", version="version", adapt=_group),
    "Operations.RemoveExecutorGroup": _delete("/executor-groups/{name}"),
    "Operations.ListAudit": _get("/audit"),
    "Operations.VerifyAudit": _get("/audit/verify"),
    "Operations.Diagnose": _get("/cluster/diagnosis"),
    "Operations.DemoteLeader": _post("/cluster/demote"),
    "Operations.DrainExecutor": _post("/executors/{worker_id}/drain"),
    "Operations.UndrainExecutor": _post("/executors/{worker_id}/undrain"),
    "Operations.DetachExecutor": _post("/executors/{worker_id}/detach"),
    # The token is in the header.
    "Accounts.Authenticate": _get("/session", adapt=lambda _: {}),
    "Accounts.ChangeOwnPassword": _post("/account/password"),
    "Accounts.ListOwnSessions": _get("/account/sessions"),
    "Accounts.EndOwnSession": _delete("/account/sessions/{id}"),
    "Accounts.ListOwnTokens": _get("/account/tokens"),
    "Accounts.CreateOwnToken": _post("/account/tokens"),
    "Accounts.RevokeOwnToken": _delete("/account/tokens/{id}"),
    "Accounts.ListUsers": _get("/users"),
    "Accounts.AddUser": _post("/users"),
    "Accounts.UpdateUser": Route(verb="PATCH", path="/users/{name}"),
    "Accounts.DeleteUser": _delete("/users/{name}"),
    "Accounts.LinkUser": _put("/users/{name}/identity"),
    "Accounts.UnlinkUser": _delete("/users/{name}/identity"),
    "Accounts.EndSessions": _post("/users/{user}/end-sessions"),
    "Accounts.May": _get("/users/{user}/may"),
    "Accounts.ListGroups": _get("/groups"),
    "Accounts.UpdateGroup add": _put("/groups/{name}", in_query=True, adapt=_without("change")),
    "Accounts.UpdateGroup delete": _delete("/groups/{name}", adapt=_without("change")),
    "Accounts.UpdateGroup join": _put("/groups/{name}/members/{user}", in_query=True, adapt=_without("change")),
    "Accounts.UpdateGroup leave": _delete("/groups/{name}/members/{user}", adapt=_without("change")),
    "Accounts.ListRules": _get("/rules"),
    "Accounts.AddRule": _post("/rules", adapt=_rule),
    "Accounts.RemoveRule": _delete("/rules/{id}"),
    "Accounts.ListTokens": _get("/tokens"),
    "Accounts.CreateToken": _post("/tokens"),
    "Accounts.RevokeToken": _delete("/tokens/{id}"),
    "Hooks.ListHooks": _get("/hooks"),
    "Hooks.ListHooks named": _get("/hooks/{name}", inside="hooks"),
    "Hooks.SetHook": _put("/hooks/{name}"),
    "Hooks.RemoveHook": _delete("/hooks/{name}"),
    "Hooks.TestHook": _post("/hooks/{name}/test"),
    "Webhooks.ListWebhooks": _get("/webhooks"),
    "Webhooks.SetWebhook": _put("/webhooks/{name}"),
    "Webhooks.RemoveWebhook": _delete("/webhooks/{name}"),
    "Webhooks.TestWebhook": _post("/webhooks/{name}/test"),
    "Webhooks.ListDeliveries": _get("/deliveries"),
    "Webhooks.Redeliver": _post("/webhooks/{webhook}/redeliver"),
}
"""Service.Method, with a word behind it where the request decides the route."""

_CERTIFICATE = "it is for the certificate of admin-cli alone"
NO_ROUTE: Mapping[str, str] = {
    "Operations.AdoptEpoch": _CERTIFICATE,
    "Operations.ListAudit exact": "the hash of an audit row is over its exact text, which REST opens as JSON",
    "Accounts.CreateBootstrapLink": _CERTIFICATE,
    "Accounts.RedeemBootstrapLink": "the site has its own page for the one-time link",
    "Accounts.GetAccountsState": "it is asked before anybody has an account",
    "LogReader.Describe": "REST has the lines of a run, and not where they are stored",
    "LogReader.Search": "over REST a search comes in parts, without its place in the stored output",
    "LogArchive": "REST has no routes for the archive",
}
"""Method or service → why the command needs --direct."""


def route_for(method: str, fields: Fields) -> Route | str:
    """The route of a method such as JobReader.GetJob for a request with these fields; else the reason why there is none."""
    key = f"{method}{_variant(method, fields)}"
    if key in ROUTES:
        return ROUTES[key]
    service = method.partition(".")[0]
    return NO_ROUTE.get(key) or NO_ROUTE.get(service) or "REST has no route for it"


def _variant(method: str, fields: Fields) -> str:
    """The word behind the method."""
    match method.partition(".")[2]:
        case "ListTriggers" | "ListHooks":
            return " named" if fields.get("name") else ""
        case "SetLimit":
            return " reset" if fields.get("reset") else ""
        case "UpdateGroup":
            return f" {fields.get('change')}"
        case "ListAudit":
            return " exact" if fields.get("oldest_first") else ""
    return ""
