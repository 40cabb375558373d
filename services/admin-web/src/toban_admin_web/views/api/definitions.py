"""Jobs, schedules and triggers: lists, single ones, and their manifests."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_models import (
    Applied,
    AppliedManifests,
    Trigger,
    TriggerPage,
)
from toban_admin_web.decide.request_input import MAX_ID, Input, Reason
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.api.inputs import invalid
from toban_domain.errors import ErrorCode, TobanError

Object = Annotated[dict[str, Any], Field(description="As in a manifest file (docs/manifests.md).")]


class Manifest(Input):
    """One document, as in a manifest file."""

    apiVersion: Literal["toban/v1"] = "toban/v1"
    kind: str = Field(description="Job, Schedule or EventTrigger.", max_length=100)
    metadata: Object
    spec: Object
    expect_version: int | None = Field(
        None, ge=0, le=MAX_ID, description="Only while the object has this version; 0 = only if it does not exist."
    )


class NamedManifest(Input):
    """The document of one object; the path has its kind and its name."""

    apiVersion: Literal["toban/v1"] = "toban/v1"
    kind: str = Field("", description="That of the path, or nothing.", max_length=100)
    metadata: Object = Field(default_factory=dict, description="Its name is that of the path, or left out.")
    spec: Object


_DRY_RUN = Field(False, description="Checks and compares, and changes nothing.")
_FORCE = Field(
    False, description="Also when payloads of schedules and triggers no longer fit the schema of a job that changes."
)


class Manifests(Reason):
    """Documents that are applied together: all or none."""

    manifests: list[Manifest] = Field(min_length=1, max_length=2000)
    dry_run: bool = _DRY_RUN
    force: bool = _FORCE


class HowApplied(Reason):
    """How a manifest is applied."""

    dry_run: bool = _DRY_RUN
    force: bool = _FORCE


def _trigger(call: Call) -> Answer:
    # TRIGGER_NOT_FOUND when there is none; the list is empty for a person who may not see it.
    found = call.ask(TriggerPage, call.fields()).triggers
    if not found:
        message = f"there is no trigger {call.path['name']!r} that you may see; GET /api/v1/triggers lists them"
        raise TobanError(ErrorCode.TRIGGER_NOT_FOUND, message)
    return found[0]


def _apply(call: Call) -> Answer:
    given = call.body.manifests
    manifests = [
        {
            **_document(one.model_dump(exclude={"expect_version"}), f"manifests.{number}"),
            "expect_version": one.expect_version,
        }
        for number, one in enumerate(given)
    ]
    how = call.body.model_dump(include={"dry_run", "force", "reason"})
    return call.ask(AppliedManifests, {"manifests": manifests, **how})


def _apply_one(kind: str) -> Any:
    def handle(call: Call) -> tuple[Answer, int]:
        name, given = call.path["name"], call.body.model_dump()
        if given["kind"] not in ("", kind):
            raise invalid("body.kind", f"is not {kind}, which the path is for")
        if given["metadata"].get("name", name) != name:
            raise invalid("body.metadata.name", f"is not {name}, which the path names")
        document = {**given, "kind": kind, "metadata": {**given["metadata"], "name": name}}
        manifest = {**_document(document, "body"), "expect_version": call.expected}
        [applied] = call.ask(AppliedManifests, {"manifests": [manifest], **call.query.model_dump()}).applied
        return applied, 201 if applied.action == "created" and not call.query.dry_run else 200

    return handle


def _document(given: dict[str, Any], source: str) -> dict[str, Any]:
    return {"json": json.dumps(given, ensure_ascii=False), "source": source}


def _applying(kind: str, path: str) -> Endpoint:
    return Endpoint(
        route=f"PUT /{path}/{{name}}",
        summary=f"Creates or changes a {kind}.",
        query=HowApplied,
        body=NamedManifest,
        answer=Applied,
        also=(201,),
        conditional=True,
        tagged=True,
        handle=_apply_one(kind),
    )


ENDPOINTS = (
    Endpoint.of("GET /jobs/{name}", tagged=True),
    Endpoint.of("GET /schedules/{name}", tagged=True),
    Endpoint.of(
        "GET /triggers/{name}", summary="One trigger.", answer=Trigger, tagged=True, handle=_trigger, query=None
    ),
    Endpoint(
        route="POST /apply",
        summary="Applies manifests: all or none.",
        body=Manifests,
        answer=AppliedManifests,
        handle=_apply,
    ),
    _applying("Job", "jobs"),
    _applying("Schedule", "schedules"),
    _applying("EventTrigger", "triggers"),
)
