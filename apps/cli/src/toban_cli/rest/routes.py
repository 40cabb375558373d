"""How the request of each method is written on its route of REST, which the rule of the method names. A test holds both against docs/openapi.json."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from toban_domain.access import MAX_REASON
from toban_domain.errors import ErrorCode, TobanError
from toban_transport import rules
from toban_transport.rules import PACKAGE, RULES

Fields = dict[str, Any]
Pairs = list[tuple[str, str]]
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


def _route(rest: rules.Route, **form: Any) -> Route:
    """A route as the rule of its method has it, with the fields of the request in its path."""
    reads: dict[str, Any] = {"repeatable": True, "adapt": _paged} if rest.verb == "GET" else {}
    return Route(verb=rest.verb, path=rest.path, **{**reads, **form})


_FORMS: Mapping[str, Mapping[str, Any]] = {
    "JobReader.ListRuns": {"adapt": _run_filter},
    "JobReader.CountRuns": {"adapt": lambda given: {**_run_filter(given.pop("filter", {})), **given}},
    "JobControl.Apply": {"adapt": _manifests},
    "JobControl.StartRuns": {"repeatable": True},
    "JobControl.RerunRun": {"repeatable": True},
    "JobControl.RerunRuns": {"repeatable": True, "adapt": _many_runs},
    "JobControl.CancelRuns": {"adapt": _many_runs},
    "JobControl.EmitEvent": {"repeatable": True},
    "Operations.UpdateSetting": {"version": "version"},
    "Operations.SetLimit": {"always": ("limit",)},
    "Operations.SetBreaker": {"adapt": lambda given: {**given, "open": "open" in given}},
    "Operations.SetSecret": {"adapt": _secret},
    "Operations.SetExecutorGroup": {"version": "version", "adapt": _group},
    # The token is in the header.
    "Accounts.Authenticate": {"adapt": lambda _: {}},
    "Accounts.AddRule": {"adapt": _rule},
}
"""What requests of a method have beside verb and path."""
_VARIANTS: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "JobReader.ListTriggers named": (1, {"inside": "triggers"}),
    "Hooks.ListHooks named": (1, {"inside": "hooks"}),
    "Operations.SetLimit reset": (1, {"adapt": _without("reset", "limit")}),
    "Accounts.UpdateGroup add": (0, {"in_query": True, "adapt": _without("change")}),
    "Accounts.UpdateGroup delete": (1, {"adapt": _without("change")}),
    "Accounts.UpdateGroup join": (2, {"in_query": True, "adapt": _without("change")}),
    "Accounts.UpdateGroup leave": (3, {"adapt": _without("change")}),
}
"""Method and a word, where the request decides the route → which of the routes in the rule of the method."""
_NOT_OF_COMMANDS = ("ExternalWork.", "JobReader.WatchRun", "JobReader.GetReadTicket")
"""External workers, and streams, which `attend` and `logs` read."""
_REST = {
    short: rule.rest
    for method, rule in RULES.items()
    if rule.rest and not (short := method.removeprefix(f"/{PACKAGE}.").replace("/", ".")).startswith(_NOT_OF_COMMANDS)
}

ROUTES: Mapping[str, Route] = {
    **{
        method: _route(rest[0], **_FORMS.get(method, {}))
        for method, rest in _REST.items()
        if method not in {key.partition(" ")[0] for key, (place, _) in _VARIANTS.items() if place == 0}
    },
    **{key: _route(_REST[key.partition(" ")[0]][place], **form) for key, (place, form) in _VARIANTS.items()},
    # The same answer, which a coordinator fetches from a log-archiver.
    "LogArchive.Status": _route(_REST["JobReader.GetArchive"][0]),
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
    **dict.fromkeys(
        ("LogArchive.RunArchive", "LogArchive.Verify"), "REST does not wait for a pass, and checks one day at a time"
    ),
    "LogArchive.Diagnose": "REST has the status of the archive, a pass and a check",
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
