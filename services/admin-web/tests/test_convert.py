"""Every view model matches its message, so that a renamed field fails here and not on a page."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from toban_admin_web.adapters.convert import from_proto
from toban_admin_web.decide import explanation, view_models
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_to_pb

KINDS = [
    "Run",
    "RunEvent",
    "Attempt",
    "Schedule",
    "NextSlot",
    "Fire",
    "Job",
    "Executor",
    "Member",
    "Cluster",
    "UserSession",
    "ApiToken",
]


@pytest.mark.parametrize("name", KINDS)
def test_an_empty_message_gives_an_empty_view_model(name: str) -> None:
    made = from_proto(getattr(view_models, name), getattr(pb, name)())
    for field in dataclasses.fields(made):
        assert not getattr(made, field.name), field.name


def test_an_empty_explanation() -> None:
    made = from_proto(explanation.RunExplanation, pb.RunExplanation())
    assert not any(getattr(made, field.name) for field in dataclasses.fields(made))
    for name in ("RunCheck", "RunLimit", "RunCandidate"):
        from_proto(getattr(explanation, name), getattr(pb, name)())


def test_all_values_are_converted() -> None:
    at = datetime(2026, 11, 21, 1, 2, 3, 456000, tzinfo=UTC)
    message = pb.Job(
        name="a",
        version=2**62,
        updated_at=timestamp_to_pb(at),
        schedules=[pb.Schedule(name="s")],
        last_run=pb.Run(id=7, exit_code=0, attempts=[pb.Attempt(token=2**62, signal=9)]),
    )
    job = from_proto(view_models.Job, message)
    assert (job.name, job.version, job.updated_at, job.schedules[0].name) == ("a", 2**62, at, "s")
    assert job.last_run is not None
    assert (job.last_run.exit_code, job.last_run.signal, job.last_run.attempts[0].signal) == (0, None, 9)
    executor = from_proto(view_models.Executor, pb.Executor(labels={"a": "b"}))
    assert executor.labels == {"a": "b"}
