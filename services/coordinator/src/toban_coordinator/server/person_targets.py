"""What each request names, so that the rules of its person can be asked; and which items of an answer they decide about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toban_coordinator.app.people.targets import Named
from toban_coordinator.server.from_proto import manifest_from_pb
from toban_domain.access import Action
from toban_transport.rules import PACKAGE, RULES

NameOf = Callable[[Any], Named]


def _by_field(kind: str, field: str) -> NameOf:
    return lambda request: Named(kind=kind, keys=[str(getattr(request, field))])


def _starts(request: Any) -> Named:
    scopes = [(run.scope or "system", run.scope_id) for run in request.runs]
    priorities = [(run.job, run.priority) for run in request.runs]
    return Named(keys=[run.job for run in request.runs], scopes=scopes, priorities=priorities)


def _rerun(request: Any) -> Named:
    into = (request.scope, request.scope_id) if request.scope else None
    key = str(request.id)
    return Named(kind="run", keys=[key], into=into, priorities=[(key, request.priority)])


def _slots(request: Any) -> Named:
    if request.HasField("manifest"):
        return Named(manifests=[manifest_from_pb(request.manifest)])
    return Named(kind="schedule", keys=[request.name])


_READER, _CONTROL = f"/{PACKAGE}.JobReader/", f"/{PACKAGE}.JobControl/"
_SEVERAL: Mapping[str, NameOf] = {
    _READER + "NextSlots": _slots,
    _CONTROL + "Apply": lambda request: Named(manifests=[manifest_from_pb(one) for one in request.manifests]),
    _CONTROL + "StartRuns": _starts,
    _CONTROL + "RerunRun": _rerun,
}
NAMED: Mapping[str, NameOf] = {
    **{method: _by_field(*rule.names) for method, rule in RULES.items() if rule.names is not None},
    **_SEVERAL,
}
"""For every method about jobs (About.JOBS): its rule names one object, or a function here finds several."""

LISTED: Mapping[str, Sequence[tuple[str, str, str]]] = {
    method: rule.items for method, rule in RULES.items() if rule.items
}
"""For every list (About.LIST): each field of items, their kind, and the field with the key of each."""


def also_needs(request: Any) -> Action | None:
    """The further action that a request asks for: to pass over limits is for who may change them."""
    return Action.OPERATE if any(run.ignore_limits for run in getattr(request, "runs", ())) else None


WITH_RUNS = frozenset({_READER + "ListJobs", _READER + "GetJob"})
"""Their jobs carry schedules and a run of any scope."""
