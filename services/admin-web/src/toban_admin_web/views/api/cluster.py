"""Executors, the leader, settings, secrets, limits and the audit log."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_models import (
    ChangedLimit,
    ExecutorGroup,
    ExecutorGroups,
    Setting,
    Settings,
)
from toban_admin_web.decide.request_input import Reason
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_domain.errors import ErrorCode, TobanError


class GroupRules(Reason):
    """A whole group of executors; of one that is there, job labels that are not given stay."""

    labels: dict[str, str] = Field(default_factory=dict, description="Labels that each of its executors has.")
    claims: list[str] = Field(
        default_factory=list, description="Labels whose values an executor may choose; `*` = all."
    )
    job_labels: dict[str, str] | None = Field(
        None,
        description="Labels that a job must have to run there; {} = every job, without it those of the group stay.",
    )
    instances: list[str] = Field(
        default_factory=list, description="Instances that pass to the group; their executors must be off."
    )

    def request_fields(self) -> dict[str, Any]:
        """A map of a message cannot tell an empty one from none."""
        return {**self.model_dump(exclude_none=True), "no_job_labels": self.job_labels == {}}


def _setting(call: Call) -> Answer:
    wanted = call.path["name"]
    for setting in call.ask(Settings, {}).settings:
        if setting.name == wanted:
            return setting
    raise TobanError(ErrorCode.NOT_FOUND, f"there is no setting {wanted!r}; GET /api/v1/settings lists them")


def _group(call: Call) -> Answer:
    wanted = call.path["name"]
    for group in call.ask(ExecutorGroups, {}).groups:
        if group.name == wanted:
            return group
    message = f"there is no executor group {wanted!r}; GET /api/v1/executor-groups lists them"
    raise TobanError(ErrorCode.NOT_FOUND, message)


def _set_group(call: Call) -> Answer:
    condition = {"create": call.expected == 0, "version": call.expected or 0}
    return call.ask(ExecutorGroup, {**call.fields(), **condition})


def _set_setting(call: Call) -> Answer:
    return call.ask(Setting, {**call.path, **dict(call.body), "version": call.expected})


def _reset_limit(call: Call) -> Answer:
    return call.ask(ChangedLimit, {**call.fields(), "reset": True})


ENDPOINTS = (
    Endpoint.of(
        "GET /executor-groups/{name}",
        summary="One group of executors.",
        answer=ExecutorGroup,
        tagged=True,
        handle=_group,
    ),
    Endpoint(
        route="PUT /executor-groups/{name}",
        summary="Changes a group of executors; with `If-None-Match: *` makes one.",
        body=GroupRules,
        answer=ExecutorGroup,
        conditional=True,
        tagged=True,
        handle=_set_group,
    ),
    Endpoint.of("GET /settings/{name}", summary="One setting.", answer=Setting, tagged=True, handle=_setting),
    Endpoint.of("PUT /settings/{name}", conditional=True, tagged=True, handle=_set_setting),
    Endpoint.of(
        "DELETE /limits/{limit}",
        summary="Removes the stored value: the definition's counts again.",
        query=Reason,
        handle=_reset_limit,
    ),
)
