"""Executors, coordinators, settings, actions and findings as messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toban_coordinator.app.audit_verify import Verified
from toban_coordinator.app.diagnose import Diagnosis
from toban_coordinator.app.job_reads import ClusterState
from toban_coordinator.app.operations_secrets import SecretState
from toban_coordinator.app.operations_settings import SettingState
from toban_coordinator.store.executor_groups import StoredGroup
from toban_domain.settings import Settings
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import Row
from toban_transport.convert import timestamp_to_pb as at

# Of one part of a verification: more would not fit into an answer, and say no more.
MOST_PROBLEMS = 100


def executor_to_pb(row: Row) -> pb.Executor:
    """One incarnation of an executor."""
    return pb.Executor(
        instance=row["instance"],
        address=f"{row['grpc_host']}:{row['grpc_port']}",
        state=row["state"],
        slots=row["slots"],
        running=row["running"],
        labels=row["labels"],
        last_heartbeat_at=at(row["last_heartbeat_at"]),
        registered_at=at(row["registered_at"]),
        grant_seq=row["grant_seq"],
        lease_ms=row["lease_ms"],
        off_reason=row["off_reason"],
        disk_free_bytes=row["disk_free_bytes"] or 0,
        drained=row["drained"],
        drain_reason=row["drain_reason"],
        load=row["load"],
        group=row["executor_group"],
        **_process(row),
    )


def group_to_pb(group: StoredGroup) -> pb.ExecutorGroup:
    """A group of executors."""
    return pb.ExecutorGroup(
        name=group.rules.name,
        labels=dict(group.rules.labels),
        claims=sorted(group.rules.claims),
        job_labels=group.rules.job_labels,
        executors=group.executors,
        instances=group.instances,
        version=group.version,
        updated_at=at(group.updated_at),
        updated_by=group.updated_by,
    )


def member_to_pb(row: Row, *, leader_worker_id: int | None) -> pb.Member:
    """One coordinator. `leader_worker_id` (None = no leader) is what the leader's row says: the coordinators' own rows follow it within a second."""
    role = "leader" if row["worker_id"] == leader_worker_id else "standby" if row["role"] == "leader" else row["role"]
    return pb.Member(
        address=row["address"],
        role=role,
        last_heartbeat_at=at(row["last_seen_at"]),
        status=row["status"],
        **_process(row),
    )


def _process(row: Row) -> dict[str, Any]:
    """The fields that executors and coordinators share: which process it is, and what it reported of itself."""
    return {
        "worker_id": row["worker_id"],
        "incarnation": row["incarnation"],
        "node_id": row["node_id"],
        "version": row["version"],
        "clock_skew_seconds": row["clock_skew_seconds"],
        "certificate_not_after": at(row["certificate_not_after"]),
    }


def cluster_to_pb(state: ClusterState, health: Mapping[str, Any]) -> pb.Cluster:
    """The whole cluster, with the /healthz document of the coordinator that answers."""
    leader = state.leader
    leads = None if leader["resigned"] else leader["worker_id"]
    return pb.Cluster(
        epoch=leader["epoch"],
        leader_worker_id=leader["worker_id"] or 0,
        leader_address=leader["address"],
        leader_since=at(leader["taken_at"]),
        last_beat_at=at(leader["beaten_at"]),
        settled=leader["settled"],
        coordinators=[member_to_pb(row, leader_worker_id=leads) for row in state.coordinators],
        executors=[executor_to_pb(row) for row in state.executors],
        health_json=json.dumps(health),
        pending=state.pending,
        running=state.running,
        server_time=at(leader["server_time"]),
    )


def settings_to_pb(settings: Settings) -> pb.WatchSettingsResponse:
    """All settings with their version."""
    values = {name: json.dumps(value) for name, value in settings.values.items()}
    return pb.WatchSettingsResponse(version=settings.version, values_json=values)


def setting_to_pb(state: SettingState) -> pb.Setting:
    """A setting with its value and bounds."""
    spec, stored = state.spec, state.stored
    return pb.Setting(
        name=spec.name,
        value_json=json.dumps(state.value),
        default_json=json.dumps(spec.default),
        unit=spec.unit,
        description=spec.affects,
        version=stored.version if stored else 0,
        minimum=spec.minimum,
        maximum=spec.maximum,
        updated_at=at(stored.updated_at) if stored else None,
        updated_by=stored.updated_by if stored else "",
        takes_effect=spec.takes_effect,
    )


def secret_to_pb(state: SecretState) -> pb.Secret:
    """A secret without its value."""
    stored = state.stored
    return pb.Secret(
        name=stored.name,
        key_id=stored.key_id,
        readable=state.readable,
        jobs=stored.jobs,
        used_by=stored.used_by,
        version=stored.version,
        created_at=at(stored.created_at),
        updated_at=at(stored.updated_at),
        updated_by=stored.updated_by,
    )


def audit_entry_to_pb(row: Row) -> pb.AuditEntry:
    """One action of an operator."""
    return pb.AuditEntry(
        id=row["id"],
        at=at(row["at"]),
        actor=row["actor"],
        action=row["action"],
        target=row["target"],
        before_json=row["before"],
        after_json=row["after"],
        reason=row["reason"],
        address=row["address"],
        service=row["service"],
        seq=row["seq"],
        hash=row["hash"].hex(),
    )


def verified_to_pb(done: Verified) -> pb.VerifyAuditResponse:
    """A part of a verification."""
    return pb.VerifyAuditResponse(
        problems=[
            pb.AuditProblem(kind=one.kind, first_seq=one.first, last_seq=one.last, message=one.message)
            for one in done.problems[:MOST_PROBLEMS]
        ],
        rows=done.rows,
        next_cursor="" if done.after is None else str(done.after),
        anchor=str(done.anchor),
        head=str(done.head),
        unchained=done.unchained,
        unchained_seconds=done.unchained_seconds,
    )


def diagnosis_to_pb(diagnosis: Diagnosis) -> pb.Diagnosis:
    """Every finding of one coordinator."""
    checks = [
        pb.DiagnosisCheck(
            name=finding.name,
            status=finding.status,
            subject=finding.subject,
            value=finding.value,
            message=finding.message,
            remedy=finding.remedy,
        )
        for finding in diagnosis.findings
    ]
    return pb.Diagnosis(checks=checks, server_time=at(diagnosis.server_time), version=diagnosis.version)
