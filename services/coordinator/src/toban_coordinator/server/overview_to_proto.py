"""The overview as a message, a new one for each caller: what the person may not see is taken out of it."""

from __future__ import annotations

from toban_coordinator.app.overview import Overview
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import Row
from toban_transport.convert import timestamp_to_pb as at


def overview_to_pb(overview: Overview) -> pb.Overview:
    """All of it."""
    return pb.Overview(
        server_time=at(overview.server_time),
        alerts=[
            pb.ActiveAlert(name=one.name, severity=one.severity, value=one.value, unit=one.unit)
            for one in overview.alerts
        ],
        failures=[_failure(row) for row in overview.failures.rows],
        more_failures=overview.failures.more,
        waiting=[
            pb.WaitingRuns(kind=kind, runs=queue.runs, oldest_seconds=queue.oldest)
            for kind, queue in sorted(overview.queues.items())
        ],
        missed=[_missed(row) for row in overview.missed],
        coming=[_coming(row) for row in overview.coming],
        coming_schedules=overview.coming_schedules,
    )


def _failure(row: Row) -> pb.FailedRuns:
    return pb.FailedRuns(
        job=row["job_name"],
        scope=row["scope"],
        scope_id=row["scope_id"],
        runs=row["runs"],
        last_run_id=row["last_run_id"],
        last_state=row["last_state"],
        last_finished_at=at(row["last_finished_at"]),
        error_summary=row["error_summary"],
        reason=row["reason"],
        recovered=row["recovered"],
    )


def _missed(row: Row) -> pb.MissedSlots:
    return pb.MissedSlots(
        schedule=row["schedule"],
        outcome=row["outcome"],
        slots=row["slots"],
        last_slot=at(row["last_slot"]),
        message=row["message"],
        run_id=row["run_id"],
    )


def _coming(row: Row) -> pb.ComingFire:
    return pb.ComingFire(schedule=row["schedule"], job=row["job"], at=at(row["at"]), timezone=row["timezone"])
