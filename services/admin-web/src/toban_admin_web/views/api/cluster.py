"""Executors, the leader, settings, secrets, limits and the audit log."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_inputs import (
    AuditCheckQuery,
    AuditQuery,
    Breaker,
    Demote,
    Detach,
    NewLimit,
    NewValue,
    RemoveQuery,
    SecretValue,
    SeenEpoch,
    Signal,
)
from toban_admin_web.decide.api_models import (
    AuditCheck,
    AuditPage,
    ChangedLimit,
    Cluster,
    Diagnosis,
    Executor,
    ExecutorGroup,
    ExecutorGroups,
    Executors,
    LimitDetails,
    Limits,
    NewLeader,
    Overview,
    RotatedSecrets,
    Secret,
    Secrets,
    Setting,
    Settings,
)
from toban_admin_web.decide.request_input import Input, Reason
from toban_admin_web.views.api.answers import Done
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_domain.errors import ErrorCode, TobanError

_LIMIT = {"limit": "name"}


class ExecutorsQuery(Input):
    """Which executors."""

    include_off: bool = Field(False, description="Also those that are off.")


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


def _of_executor(verb: str, summary: str, body: type[Input] = SeenEpoch) -> Endpoint:
    route = f"POST /executors/{{worker_id}}/{verb}"
    return Endpoint(route=route, summary=summary, body=body, body_optional=True, answer=Executor)


ENDPOINTS = (
    Endpoint(route="GET /executors", summary="Executors.", query=ExecutorsQuery, answer=Executors),
    _of_executor("drain", "Sends it no further runs; its running ones continue."),
    _of_executor("undrain", "Gives it runs again."),
    _of_executor("detach", "Takes it out of the cluster.", Detach),
    Endpoint(route="GET /cluster", summary="Leader, coordinators, executors and health.", answer=Cluster),
    Endpoint(
        route="GET /overview",
        summary="What needs attention: alerts, failures, what waits, missed slots, what fires next.",
        answer=Overview,
    ),
    Endpoint(
        route="GET /cluster/diagnosis", summary="What is wrong in the installation, with remedies.", answer=Diagnosis
    ),
    Endpoint(route="POST /cluster/demote", summary="Makes another coordinator lead.", body=Demote, answer=NewLeader),
    Endpoint(route="GET /executor-groups", summary="Groups of executors.", answer=ExecutorGroups),
    Endpoint(
        route="GET /executor-groups/{name}",
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
    Endpoint(
        route="DELETE /executor-groups/{name}", summary="Removes a group of executors.", query=Reason, answer=Done
    ),
    Endpoint(route="GET /settings", summary="All settings.", answer=Settings),
    Endpoint(route="GET /settings/{name}", summary="One setting.", answer=Setting, tagged=True, handle=_setting),
    Endpoint(
        route="PUT /settings/{name}",
        summary="Changes a setting.",
        body=NewValue,
        answer=Setting,
        conditional=True,
        tagged=True,
        handle=_set_setting,
    ),
    Endpoint(route="GET /limits", summary="All limits.", answer=Limits),
    Endpoint(route="GET /limits/{limit}", summary="One limit with its runs.", answer=LimitDetails, renames=_LIMIT),
    Endpoint(route="PUT /limits/{limit}", summary="Sets a limit.", body=NewLimit, answer=ChangedLimit, renames=_LIMIT),
    Endpoint(
        route="DELETE /limits/{limit}",
        summary="Removes the stored value: the definition's counts again.",
        query=Reason,
        answer=ChangedLimit,
        renames=_LIMIT,
        handle=_reset_limit,
    ),
    Endpoint(
        route="POST /limits/{limit}/breaker",
        summary="Opens or closes a breaker.",
        body=Breaker,
        answer=ChangedLimit,
        renames=_LIMIT,
    ),
    Endpoint(
        route="POST /limits/{limit}/signal",
        summary="Reports the health of what a limit protects.",
        body=Signal,
        answer=ChangedLimit,
        renames=_LIMIT,
    ),
    Endpoint(route="GET /secrets", summary="All secrets, without their values.", answer=Secrets),
    Endpoint(
        route="PUT /secrets/{name}", summary="Makes a secret, or gives it a new value.", body=SecretValue, answer=Secret
    ),
    Endpoint(route="DELETE /secrets/{name}", summary="Removes a secret.", query=RemoveQuery, answer=Done),
    Endpoint(
        route="POST /secrets/rotate",
        summary="Encrypts every secret with the first key again.",
        body=Reason,
        body_optional=True,
        answer=RotatedSecrets,
    ),
    Endpoint(
        route="GET /audit", summary="The audit log, newest first or oldest first.", query=AuditQuery, answer=AuditPage
    ),
    Endpoint(
        route="GET /audit/verify",
        summary="Checks the hash chain of the audit log, a part at a time.",
        query=AuditCheckQuery,
        answer=AuditCheck,
    ),
)
