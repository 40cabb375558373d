"""The overview as a message, a new one for each caller: what the person may not see is taken out of it."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from toban_coordinator.app.cluster.overview import Overview
from toban_coordinator.decide.cluster.activity import Interval
from toban_proto.v1 import coordinator_pb2 as pb
from toban_transport.convert import fill
from toban_transport.convert import timestamp_to_pb as at


def _interval(one: Interval) -> pb.ActivityInterval:
    return pb.ActivityInterval(
        begins_at=Timestamp(seconds=one.begins_at),
        succeeded=one.succeeded,
        failed=one.failed,
        other=one.other,
        wait_seconds=one.wait,
        busy_slots=one.busy,
    )


def overview_to_pb(overview: Overview) -> pb.Overview:
    """All of it."""
    return pb.Overview(
        server_time=at(overview.server_time),
        alerts=[fill(pb.ActiveAlert, one) for one in overview.alerts],
        failures=[fill(pb.FailedRuns, row, job=row["job_name"]) for row in overview.failures.rows],
        more_failures=overview.failures.more,
        waiting=[
            pb.WaitingRuns(kind=kind, runs=queue.runs, oldest_seconds=queue.oldest)
            for kind, queue in sorted(overview.queues.items())
        ],
        missed=[fill(pb.MissedSlots, row) for row in overview.missed],
        coming=[fill(pb.ComingFire, row) for row in overview.coming],
        coming_schedules=overview.coming_schedules,
        activity=[_interval(one) for one in overview.activity],
    )
