"""Every answer has the fields of its message, so that a new field of the protocol is decided upon here."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.adapters.convert import from_proto, to_proto
from toban_admin_web.views.api import (
    answers_accounts,
    answers_cluster,
    answers_definitions,
    answers_hooks,
    answers_limits,
    answers_runs,
    answers_work,
)
from toban_admin_web.views.api.answers import Answer
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import common_pb2, hooks_pb2, webhooks_pb2
from toban_proto.v1 import coordinator_pb2 as pb

MODULES = (
    answers_accounts,
    answers_cluster,
    answers_definitions,
    answers_hooks,
    answers_limits,
    answers_runs,
    answers_work,
)
# Where the name is not that of the message.
MESSAGES = {
    "ChangedLimit": "SetLimitResponse",
    "ChangedRun": "CancelRunResponse",
    "ChangedRuns": "ChangeRunsResponse",
    "StartedRuns": "StartRunsResponse",
    "RunPage": "ListRunsResponse",
    "LimitDetails": "GetLimitResponse",
    "Limits": "ListLimitsResponse",
    "NextSlots": "NextSlotsResponse",
    "FirePage": "ListFiresResponse",
    "JobPage": "ListJobsResponse",
    "JobVersionPage": "ListJobVersionsResponse",
    "SchedulePage": "ListSchedulesResponse",
    "TriggerPage": "ListTriggersResponse",
    "EventPage": "ListEventsResponse",
    "AppliedManifests": "ApplyResponse",
    "DeletedJob": "DeleteJobResponse",
    "DeletedSchedule": "DeleteScheduleResponse",
    "EmittedEvent": "EmitEventResponse",
    "Executors": "ListExecutorsResponse",
    "ExecutorGroups": "ListExecutorGroupsResponse",
    "Settings": "ListSettingsResponse",
    "Secrets": "ListSecretsResponse",
    "AuditPage": "ListAuditResponse",
    "RotatedSecrets": "RotateSecretsResponse",
    "NewLeader": "DemoteLeaderResponse",
    "UserPage": "ListUsersResponse",
    "Groups": "ListGroupsResponse",
    "Rules": "ListRulesResponse",
    "Tokens": "ListTokensResponse",
    "NewToken": "CreateTokenResponse",
    "Verdict": "MayResponse",
    "UserSessions": "ListOwnSessionsResponse",
    "AuditCheck": "VerifyAuditResponse",
    "Hooks": "ListHooksResponse",
    "ClaimedSteps": "ClaimResponse",
    "ExtendedClaims": "ExternalHeartbeatResponse",
    "NotedProgress": "UpdateProgressResponse",
    "StepAnswers": "CompleteResponse",
    "EndedStep": "FailResponse",
    "ChangedHook": "SetHookResponse",
    "HookTest": "TestHookResponse",
    "Webhooks": "ListWebhooksResponse",
    "ChangedWebhook": "SetWebhookResponse",
    "DeliveryPage": "ListDeliveriesResponse",
    "Redelivered": "RedeliverResponse",
}
MODELS: list[type[Answer]] = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Answer) and kind.__module__ == module.__name__
]


def test_an_answer_has_the_fields_of_its_message(subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model.__name__):
            name = MESSAGES.get(model.__name__, model.__name__)
            message = next(
                getattr(module, name) for module in (pb, common_pb2, hooks_pb2, webhooks_pb2) if hasattr(module, name)
            )()
            names = {field.name.removesuffix("_json") for field in message.DESCRIPTOR.fields}
            assert names == set(model.model_fields)
            assert model.model_validate_json(from_proto(model, message).model_dump_json())


def test_numbers_above_2_53_are_text_and_json_texts_are_opened() -> None:
    message = pb.Run(id=7, token=2**62, payload_json='{"a": [1]}', result_json="", progress_json="{", signal=9)
    run = from_proto(answers_runs.Run, message)
    assert (run.token, run.payload, run.result, run.progress, run.signal, run.exit_code) == (
        str(2**62),
        {"a": [1]},
        None,
        "{",
        9,
        None,
    )
    deep = from_proto(answers_runs.Run, pb.Run(payload_json="[" * 900 + "]" * 900))
    assert isinstance(deep.payload, str) and deep.model_dump_json()


def test_fields_become_messages() -> None:
    fields: dict[str, Any] = {
        "runs": [{"job": "a", "payload": {"x": 1}, "priority": 0, "scheduled_for": None}, {"job": "b"}],
        "reason": "r",
    }
    request = to_proto(pb.StartRunsRequest, fields)
    assert [(one.job, one.payload_json) for one in request.runs] == [("a", '{"x": 1}'), ("b", "")]
    listed = to_proto(
        pb.ListRunsRequest, {"page": {"limit": 5, "cursor": ""}, "labels": {"k": "v"}, "states": ["FAILED"]}
    )
    assert (listed.page.limit, dict(listed.labels), list(listed.states)) == (5, {"k": "v"}, ["FAILED"])
    assert to_proto(pb.UpdateUserRequest, {"enabled": False}).HasField("enabled")
    assert not to_proto(pb.UpdateUserRequest, {"enabled": None}).HasField("enabled")


@pytest.mark.parametrize("fields", [{"id": 2**64}, {"id": "x"}, {"text": "\ud800"}, {"text": 5}, {"id": 1.5}], ids=str)
def test_a_value_that_does_not_fit_is_invalid(fields: dict[str, Any]) -> None:
    with pytest.raises(TobanError) as caught:
        to_proto(pb.NoteRunRequest, fields)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
