"""Sums and choices of the cluster page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toban_admin_web.adapters.convert import from_proto
from toban_admin_web.decide.api_models import Cluster, Executor
from toban_admin_web.decide.dashboard import UNRESPONSIVE_AFTER, SlotUsage, leader_status, slot_usage
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_to_pb

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def _executor(state: str, *, slots: int, running: int) -> Executor:
    return from_proto(Executor, pb.Executor(state=state, slots=slots, running=running))


def _cluster(*, address: str = "a:1", beat_at: datetime | None = NOW) -> Cluster:
    times = {"last_beat_at": timestamp_to_pb(beat_at), "server_time": timestamp_to_pb(NOW)}
    return from_proto(Cluster, pb.Cluster(epoch=1, leader_address=address, **times))


def test_slots_of_executors_that_are_on() -> None:
    listed = [_executor("on", slots=4, running=1), _executor("draining", slots=8, running=2)]
    assert slot_usage(listed) == SlotUsage(used=3, total=4, executors=1)


@pytest.mark.parametrize(
    ("cluster", "status"),
    [
        (_cluster(), "active"),
        (_cluster(beat_at=NOW - UNRESPONSIVE_AFTER + timedelta(milliseconds=1)), "active"),
        (_cluster(beat_at=NOW - UNRESPONSIVE_AFTER), "unresponsive"),
        (_cluster(address=""), "none"),
        (_cluster(beat_at=None), "none"),
    ],
)
def test_status_of_the_leader(cluster: Cluster, status: str) -> None:
    assert leader_status(cluster) == status
