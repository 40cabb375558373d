"""Rows of the store as messages."""

from __future__ import annotations

import json

from toban_domain.schedule import RuleSpec
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import describe
from toban_store.tx import Row
from toban_transport.convert import timestamp_to_pb as at


def run_to_pb(row: Row) -> pb.Run:
    """A run without its attempts and events."""
    return pb.Run(
        id=row["id"],
        job=row["job_name"],
        definition_version=row["definition_version"],
        schedule=row["schedule_name"],
        origin=row["origin"],
        slot=at(row["slot"]),
        scheduled_for=at(row["scheduled_for"]),
        state=row["state"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        lost_count=row["lost_count"],
        token=row["token"] or 0,
        leader_epoch=row["leader_epoch"] or 0,
        worker_id=row["assigned_worker_id"] or 0,
        executor=row["executor"] or "",
        created_at=at(row["created_at"]),
        assigned_at=at(row["assigned_at"]),
        dispatched_at=at(row["dispatched_at"]),
        started_at=at(row["started_at"]),
        finished_at=at(row["finished_at"]),
        exit_code=row["exit_code"],
        signal=row["term_signal"],
        error_summary=row["error_summary"],
        reason=row["reason"],
        payload_json=row["payload"],
        log_ref=row["log_ref"],
        cancel_reason=row["cancel_reason"],
        created_by=row["created_by"],
        last_line=row["last_line"],
        version=row["version"],
        rerun_of=row["rerun_of"] or 0,
        idempotency_key=row["idempotency_key"] or "",
        cancel_requested_at=at(row["cancel_requested_at"]),
        progress_json=row["progress"] or "",
        event_id=row["event_id"] or 0,
        trigger=row["trigger_name"],
    )


def attempt_to_pb(row: Row) -> pb.Attempt:
    """One dispatch of a run."""
    return pb.Attempt(
        token=row["token"],
        attempt=row["attempt"],
        state=row["state"],
        worker_id=row["worker_id"],
        executor=row["executor"] or "",
        dispatched_at=at(row["dispatched_at"]),
        started_at=at(row["started_at"]),
        finished_at=at(row["finished_at"]),
        exit_code=row["exit_code"],
        signal=row["term_signal"],
        error_summary=row["error_summary"],
        reason=row["reason"],
    )


def event_to_pb(row: Row) -> pb.RunEvent:
    """One change of a run."""
    return pb.RunEvent(
        at=at(row["at"]),
        type=row["type"],
        from_state=row["from_state"],
        to_state=row["to_state"],
        message=row["message"],
        actor=row["actor"],
    )


def orphan_to_event(row: Row) -> pb.RunEvent:
    """A result that was kept and not applied, shown among the events."""
    outcome = row["outcome"]
    text = f"attempt {row['token']} ended {outcome['kind']} after its run had gone on: kept, not applied"
    return pb.RunEvent(at=at(row["received_at"]), type="orphan_result", message=text)


def job_to_pb(row: Row) -> pb.Job:
    """A definition without its schedules and last run."""
    return pb.Job(
        name=row["name"],
        version=row["version"],
        enabled=row["enabled"],
        description=row["description"] or "",
        spec_json=row["spec"],
        updated_at=at(row["updated_at"]),
    )


def schedule_to_pb(row: Row) -> pb.Schedule:
    """A schedule with its rule in words."""
    return pb.Schedule(
        name=row["name"],
        job=row["job"],
        enabled=row["enabled"],
        status=row["status"],
        spec_json=row["spec"],
        timezone=row["timezone"],
        rule=_rule_of(row["spec"]),
        next_run_at=at(row["next_run_at"]),
        last_run_at=at(row["last_run_at"]),
        last_error=row["last_error"],
        version=row["version"],
        status_reason=row["status_reason"],
        status_actor=row["status_actor"],
        description=row["description"] or "",
        updated_at=at(row["updated_at"]),
        updated_by=row["updated_by"],
    )


def _rule_of(spec: str) -> str:
    """The rule in words, also where one row holds what this version cannot read: the others of its page are shown."""
    try:
        return describe(RuleSpec.from_json(json.loads(spec)))
    except (LookupError, TypeError, ValueError, AttributeError):
        return "cannot be read"


def executor_to_pb(row: Row) -> pb.Executor:
    """One incarnation of an executor."""
    return pb.Executor(
        worker_id=row["worker_id"],
        incarnation=row["incarnation"],
        instance=row["instance"],
        node_id=row["node_id"],
        address=f"{row['grpc_host']}:{row['grpc_port']}",
        state=row["state"],
        slots=row["slots"],
        running=row["running"],
        labels=row["labels"],
        last_heartbeat_at=at(row["last_heartbeat_at"]),
        registered_at=at(row["registered_at"]),
        grant_seq=row["grant_seq"],
        lease_ms=row["lease_ms"],
        version=row["version"],
        off_reason=row["off_reason"],
        clock_skew_seconds=row["clock_skew_seconds"],
        disk_free_bytes=row["disk_free_bytes"] or 0,
        certificate_not_after=at(row["certificate_not_after"]),
        drained=row["drained"],
        drain_reason=row["drain_reason"],
        load=row["load"],
    )


def member_to_pb(row: Row, *, leader_worker_id: int | None) -> pb.Member:
    """One coordinator. Who leads (None = nobody) is what the leader's row says: the coordinators' own rows follow it within a second."""
    role = "leader" if row["worker_id"] == leader_worker_id else "standby" if row["role"] == "leader" else row["role"]
    return pb.Member(
        worker_id=row["worker_id"],
        incarnation=row["incarnation"],
        node_id=row["node_id"],
        address=row["address"],
        role=role,
        last_heartbeat_at=at(row["last_seen_at"]),
        version=row["version"],
        status=row["status"],
        clock_skew_seconds=row["clock_skew_seconds"],
        certificate_not_after=at(row["certificate_not_after"]),
    )
