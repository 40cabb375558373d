"""Runs: lists, single ones, starts and changes; events."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, Field, field_validator

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_models import (
    ChangedRuns,
    EmittedEvent,
    RunCounts,
    RunPage,
    StartedRun,
    StartedRuns,
)
from toban_admin_web.decide.request_input import MAX_CURSOR, MAX_INT32, MAX_NAME, Input, Reason
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_domain.access import MAX_REASON
from toban_domain.run import RunState

Payload = dict[str, Any]
Mode = Literal["", "cooperative", "kill"]
_KEY = Field("", max_length=200, description="Runs with the same key of one job are started only once.")
_PRIORITY = Field(0, ge=-MAX_INT32, le=MAX_INT32, description="0 = as it is defined.")
_SCOPE = Field("", max_length=10, description="system, account or user; empty = system.")
_SCOPE_ID = Field("", max_length=200, description="Which account or user.")


class RunParts(Input):
    """Which runs. All parts must hold; a part that is left out leaves nothing out."""

    job: str = Field("", max_length=MAX_NAME)
    schedule: str = Field("", max_length=MAX_NAME)
    state: list[RunState] = Field(default_factory=list, description="In one of these states.")
    executor: str = Field("", max_length=MAX_NAME, description="A node, an instance or a worker id.")
    origin: Literal["", "slot", "demand", "event", "rerun"] = ""
    scope: str = Field("", max_length=10, description="system, account or user.")
    scope_id: str = Field("", max_length=200, description="Only with a scope.")
    label: list[str] = Field(
        default_factory=list, max_length=20, description="KEY=VALUE, a label of the job as it is now; all must fit."
    )
    since: AwareDatetime | None = Field(None, description="Not ended before.")
    until: AwareDatetime | None = Field(None, description="Created before.")
    ahead: bool = Field(False, description="Also runs that are not due yet: they are created in advance.")

    @field_validator("label")
    @classmethod
    def _labels(cls, given: list[str]) -> list[str]:
        if any(not one.partition("=")[0] or "=" not in one for one in given):
            raise ValueError("a label is KEY=VALUE, such as team=ops")
        return given

    def parts(self) -> dict[str, Any]:
        """As the fields of ListRunsRequest."""
        as_they_are = ("job", "schedule", "executor", "origin", "scope", "scope_id")
        return {
            **{name: getattr(self, name) for name in as_they_are},
            "states": [state.value for state in self.state],
            "labels": dict(one.split("=", 1) for one in self.label),
            "active_from": self.since,
            "active_until": self.until,
            "include_ahead": self.ahead,
        }


class RunFilter(RunParts):
    """Which runs, and of them those after a page."""

    cursor: str = Field("", max_length=MAX_CURSOR, description="`next_cursor` of the page before; empty = first page.")

    def request(self, *, limit: int = 0) -> dict[str, Any]:
        """As the fields of ListRunsRequest."""
        return {**self.parts(), "page": {"limit": limit, "cursor": self.cursor}}


class RunsQuery(RunFilter):
    """Which runs, and how many."""

    limit: int = Field(50, ge=1, le=500, description="Items at most.")
    brief: bool = Field(False, description="Without payload and result.")
    idempotency_key: str = Field("", max_length=200, description="The run of this key of the job that `job` names.")

    def request_fields(self) -> dict[str, Any]:
        """As the fields of ListRunsRequest."""
        return {**self.request(limit=self.limit), "brief": self.brief, "idempotency_key": self.idempotency_key}


class CountsQuery(RunParts):
    """Which runs, and how they are counted."""

    by: Literal["job", "executor"] = Field("job", description="What they are grouped by.")
    interval_seconds: int = Field(
        0, ge=0, le=MAX_INT32, description="How long each interval is, at most 500 of them; 0 = the whole span is one."
    )

    def request_fields(self) -> dict[str, Any]:
        """As the fields of CountRunsRequest."""
        return {"filter": self.parts(), "by": self.by, "interval_seconds": self.interval_seconds}


class Start(Input):
    """How a run starts."""

    payload: Payload = Field(default_factory=dict, description="Merged over the default payload of the job.")
    idempotency_key: str = _KEY
    scheduled_for: AwareDatetime | None = Field(None, description="When; now without it.")
    priority: int = _PRIORITY
    scope: str = _SCOPE
    scope_id: str = _SCOPE_ID
    ignore_limits: bool = Field(False, description="Starts whatever limits and breakers say; for administrators.")


class StartOne(Start):
    """A run of the job of the path."""

    reason: str = Field("", max_length=MAX_REASON, description="Why limits are ignored; it is in the audit log.")


class StartNamed(Start):
    """A run of a job."""

    job: str = Field(max_length=MAX_NAME)


class StartMany(Input):
    """Runs that are started together: all or none."""

    runs: list[StartNamed] = Field(min_length=1, max_length=5000)
    reason: str = Field("", max_length=MAX_REASON, description="Why limits are ignored; it is in the audit log.")


class ManyRuns(Reason):
    """Which runs are changed. A part of them in each call: go on with `next_cursor` in the filter until it is empty."""

    filter: RunFilter
    dry_run: bool = Field(False, description="Counts, and changes nothing.")

    def request_fields(self) -> dict[str, Any]:
        """With the filter as the fields of ListRunsRequest."""
        return {**self.model_dump(exclude={"filter"}), "filter": self.filter.request()}


class CancelMany(ManyRuns):
    """Runs to cancel; without states all that have not ended."""

    mode: Mode = ""


class RerunMany(ManyRuns):
    """Runs to repeat; without states those that FAILED, TIMED_OUT or EXPIRED."""

    latest_definition: bool = False
    priority: int = _PRIORITY
    operation: str = Field("", max_length=200, description="One name for all parts: each run is repeated once in it.")


def _start_one(call: Call) -> tuple[Answer, int]:
    given = call.body.model_dump(exclude_none=True)
    reason = given.pop("reason")
    wanted = {**given, "job": call.path["name"], "idempotency_key": call.key or given["idempotency_key"]}
    [started] = call.ask(StartedRuns, {"runs": [wanted], "reason": reason}).runs
    return started, 201 if started.created else 200


def _start_many(call: Call) -> tuple[Answer, int]:
    runs = [one.model_dump(exclude_none=True) for one in call.body.runs]
    for number, one in enumerate(runs):
        if call.key and not one["idempotency_key"]:
            one["idempotency_key"] = f"{call.key}:{number}"
    started = call.ask(StartedRuns, {"runs": runs, "reason": call.body.reason})
    return started, 201 if any(one.created for one in started.runs) else 200


def _rerun(call: Call) -> tuple[Answer, int]:
    fields = call.fields()
    started = call.ask(StartedRun, {**fields, "idempotency_key": call.key or fields["idempotency_key"]})
    return started, 201 if started.created else 200


def _rerun_many(call: Call) -> Answer:
    fields = call.fields()
    return call.ask(ChangedRuns, {**fields, "operation": fields["operation"] or call.key})


def _emit(call: Call) -> tuple[Answer, int]:
    fields = call.fields()
    emitted = call.ask(EmittedEvent, {**fields, "dedupe_key": call.key or fields["dedupe_key"]})
    return emitted, 200 if emitted.duplicate else 201


ENDPOINTS = (
    Endpoint(route="GET /runs", summary="Runs, newest first.", query=RunsQuery, answer=RunPage),
    Endpoint(
        route="GET /runs/counts",
        summary="How many runs ran in a span of time, by executor or job, state and interval. Without times: of the last hour.",
        query=CountsQuery,
        answer=RunCounts,
    ),
    Endpoint(
        route="POST /jobs/{name}/runs",
        summary="Starts a run of a job.",
        body=StartOne,
        body_optional=True,
        answer=StartedRun,
        status=201,
        also=(200,),
        idempotent=True,
        handle=_start_one,
    ),
    Endpoint(
        route="POST /runs",
        summary="Starts several runs: all or none.",
        body=StartMany,
        answer=StartedRuns,
        status=201,
        also=(200,),
        idempotent=True,
        handle=_start_many,
    ),
    Endpoint.of("POST /runs/{id}/rerun", status=201, also=(200,), idempotent=True, handle=_rerun),
    Endpoint(
        route="POST /runs/rerun",
        summary="Repeats the runs that a filter names, a part in each call.",
        body=RerunMany,
        answer=ChangedRuns,
        idempotent=True,
        handle=_rerun_many,
    ),
    Endpoint(
        route="POST /runs/cancel",
        summary="Cancels the runs that a filter names, a part in each call.",
        body=CancelMany,
        answer=ChangedRuns,
    ),
    Endpoint.of("POST /events", status=201, also=(200,), idempotent=True, handle=_emit),
)
