"""Sums and choices of the cluster page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toban_admin_web.decide.dashboard import UNRESPONSIVE_AFTER, SlotUsage, leader_status, slot_usage
from toban_admin_web.decide.view_models import Cluster, Executor

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def _executor(state: str, *, slots: int, running: int) -> Executor:
    return Executor(
        worker_id=1,
        node_id="a",
        address="",
        state=state,
        slots=slots,
        running=running,
        labels={},
        last_heartbeat_at=None,
        version="",
        off_reason="",
        drained=False,
        drain_reason="",
    )


def _cluster(*, address: str = "a:1", beat_at: datetime | None = NOW) -> Cluster:
    return Cluster(
        epoch=1,
        leader_worker_id=1,
        leader_address=address,
        leader_since=None,
        last_beat_at=beat_at,
        settled=True,
        coordinators=(),
        executors=(),
        health_json="",
        pending=0,
        running=0,
        server_time=NOW,
    )


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
