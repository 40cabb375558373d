"""`toban schedule load` against a cluster over mTLS."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import timestamp_to_pb

Toban = Callable[..., tuple[int, str, str]]


def test_the_most_crowded_minutes(cluster: Any, toban: Toban) -> None:
    named = [pb.LoadSchedule(schedule=name, job="sync", slots=1) for name in ("sync-a", "sync-b")]
    minute = pb.CrowdedMinute(
        at=timestamp_to_pb(datetime(2026, 11, 29, 18, tzinfo=UTC)), slots=30, schedules=30, named=named
    )
    cluster.reader.answers["GetComingLoad"] = pb.ComingLoad(crowded=[minute], left_out=1, unreadable=2)
    code, out, errors = toban("schedule", "load", "--minutes", "5", "--names", "2")
    assert code == 0 and "30" in out and "sync-a, sync-b +28" in out
    assert "1 schedule left out" in errors and "2 schedules with a rule" in errors
    assert cluster.reader.requests[-1] == pb.GetComingLoadRequest(crowded=5, names=2)
    assert toban("schedule", "load", "-o", "name")[1] == "sync-a\nsync-b\n"
    cluster.reader.answers["GetComingLoad"] = pb.ComingLoad()
    assert "No schedule fires" in "".join(toban("schedule", "load")[1:])
