"""What each request names, so that the rules of its person can be asked; and which items of an answer they decide about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toban_coordinator.app.targets import Named
from toban_coordinator.server.from_proto import manifest_from_pb
from toban_domain.access import Action

NameOf = Callable[[Any], Named]


def _by_name(kind: str, field: str = "name") -> NameOf:
    return lambda request: Named(kind=kind, keys=[getattr(request, field)])


def _run(request: Any) -> Named:
    return Named(kind="run", keys=[str(request.id)])


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


_READ: Mapping[str, NameOf] = {
    "GetJob": _by_name("job"),
    "ListJobVersions": _by_name("job"),
    "GetJobDays": _by_name("job"),
    "GetSchedule": _by_name("schedule"),
    "NextSlots": _slots,
    "ListFires": _by_name("ledger", "schedule"),
    "GetRun": _run,
    "WatchRun": _run,
    "ExplainRun": _run,
}
_WRITE: Mapping[str, NameOf] = {
    "Apply": lambda request: Named(manifests=[manifest_from_pb(one) for one in request.manifests]),
    "StartRuns": _starts,
    "RerunRun": _rerun,
    "NoteRun": _run,
    "CancelRun": _run,
    "DeclareRunLost": _run,
    "DeleteJob": _by_name("job_uses"),
    "DisableJob": _by_name("job"),
    "EnableJob": _by_name("job"),
    "PauseSchedule": _by_name("schedule"),
    "ResumeSchedule": _by_name("schedule"),
    "DeleteSchedule": _by_name("schedule"),
    "DeleteTrigger": _by_name("trigger"),
}
NAMED: Mapping[str, NameOf] = {
    **{f"/toban_proto.v1.JobReader/{method}": name_of for method, name_of in _READ.items()},
    **{f"/toban_proto.v1.JobControl/{method}": name_of for method, name_of in _WRITE.items()},
}
"""For every method about jobs (About.JOBS)."""

LISTED: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "/toban_proto.v1.JobReader/ListJobs": [("jobs", "job", "name")],
    "/toban_proto.v1.JobReader/ListSchedules": [("schedules", "schedule", "name")],
    "/toban_proto.v1.JobReader/ListRuns": [("runs", "run", "id")],
    "/toban_proto.v1.JobReader/ListTriggers": [("triggers", "trigger", "name")],
    # Failures are of one job and scope, as the newest of them.
    "/toban_proto.v1.JobReader/GetOverview": [
        ("failures", "run", "last_run_id"),
        ("missed", "schedule", "schedule"),
        ("coming", "schedule", "schedule"),
    ],
}
"""For every list (About.LIST): each field of items, their kind, and the field with the key of each."""


def also_needs(request: Any) -> Action | None:
    """The further action that a request asks for: to pass over limits is for who may change them."""
    return Action.OPERATE if any(run.ignore_limits for run in getattr(request, "runs", ())) else None


WITH_RUNS = frozenset({"/toban_proto.v1.JobReader/ListJobs", "/toban_proto.v1.JobReader/GetJob"})
"""Their jobs carry schedules and a run of any scope."""
