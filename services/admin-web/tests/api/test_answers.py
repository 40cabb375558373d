"""Messages of the coordinators become answers, and fields of requests become messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from toban_admin_web.adapters.convert import from_proto, to_proto
from toban_admin_web.decide.api_models import Executor, Job, Run
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_to_pb


def test_numbers_above_2_53_are_text_and_json_texts_are_opened() -> None:
    message = pb.Run(id=7, token=2**62, payload_json='{"a": [1]}', result_json="", progress_json="{", signal=9)
    run = from_proto(Run, message)
    assert (run.token, run.payload, run.result, run.progress, run.signal, run.exit_code) == (
        str(2**62),
        {"a": [1]},
        None,
        "{",
        9,
        None,
    )
    deep = from_proto(Run, pb.Run(payload_json="[" * 900 + "]" * 900))
    assert isinstance(deep.payload, str) and deep.model_dump_json()


def test_times_labels_and_nested_messages_are_converted() -> None:
    at = datetime(2026, 11, 21, 1, 2, 3, 456000, tzinfo=UTC)
    message = pb.Job(
        updated_at=timestamp_to_pb(at),
        schedules=[pb.Schedule(name="s")],
        last_run=pb.Run(exit_code=0, attempts=[pb.Attempt(token=2**62, signal=9)]),
    )
    job = from_proto(Job, message)
    assert (job.updated_at, job.disabled_at, job.schedules[0].name) == (at, None, "s")
    assert job.last_run is not None
    [attempt] = job.last_run.attempts
    assert (job.last_run.exit_code, job.last_run.signal, attempt.signal, attempt.token) == (0, None, 9, str(2**62))
    assert from_proto(Job, pb.Job()).last_run is None
    assert from_proto(Executor, pb.Executor(labels={"a": "b"})).labels == {"a": "b"}


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
