"""Executors, coordinators, settings, actions and findings as messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toban_coordinator.app.cluster.audit_verify import Verified
from toban_coordinator.app.cluster.diagnose import Diagnosis
from toban_coordinator.app.cluster.operations_settings import SettingState
from toban_coordinator.app.runs.job_reads import ClusterState
from toban_coordinator.app.secrets.operations_secrets import SecretState
from toban_coordinator.ports.archivers import ArchiveCheck
from toban_coordinator.store.executors.executor_groups import StoredGroup
from toban_domain.settings import Settings
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import Row
from toban_transport.convert import fill
from toban_transport.convert import timestamp_to_pb as at

# Of one part of a verification: more would not fit into an answer, and say no more.
MOST_PROBLEMS = 100


def executor_to_pb(row: Row) -> pb.Executor:
    """One incarnation of an executor."""
    address = f"{row['grpc_host']}:{row['grpc_port']}"
    return fill(pb.Executor, row, address=address, group=row["executor_group"])


def group_to_pb(group: StoredGroup) -> pb.ExecutorGroup:
    """A group of executors."""
    rules = group.rules
    own = {"name": rules.name, "labels": rules.labels, "claims": sorted(rules.claims), "job_labels": rules.job_labels}
    return fill(pb.ExecutorGroup, group, **own)


def member_to_pb(row: Row, *, leader_worker_id: int | None) -> pb.Member:
    """One coordinator. `leader_worker_id` (None = no leader) is what the leader's row says: the coordinators' own rows follow it within a second."""
    role = "leader" if row["worker_id"] == leader_worker_id else "standby" if row["role"] == "leader" else row["role"]
    return fill(pb.Member, row, role=role, last_heartbeat_at=row["last_seen_at"])


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
    return fill(pb.Secret, state.stored, readable=state.readable)


def audit_entry_to_pb(row: Row) -> pb.AuditEntry:
    """One action of an operator."""
    texts = {"before_json": row["before"], "after_json": row["after"]}
    return fill(pb.AuditEntry, row, hash=row["hash"].hex(), **texts)


def verified_to_pb(done: Verified) -> pb.VerifyAuditResponse:
    """A part of a verification."""
    problems = [
        fill(pb.AuditProblem, one, first_seq=one.first, last_seq=one.last) for one in done.problems[:MOST_PROBLEMS]
    ]
    cursor = None if done.after is None else str(done.after)
    ends = {"anchor": str(done.anchor), "head": str(done.head)}
    return fill(pb.VerifyAuditResponse, done, problems=problems, next_cursor=cursor, **ends)


def archive_check_to_pb(check: ArchiveCheck) -> pb.VerifyArchiveDayResponse:
    """A part of a check of archived objects."""
    broken = [pb.BrokenObject(key=one.key, problem=one.problem) for one in check.objects if one.problem]
    return pb.VerifyArchiveDayResponse(
        objects=len(check.objects),
        chunks=sum(one.chunks for one in check.objects),
        bytes=sum(one.bytes for one in check.objects),
        broken=broken,
        next_cursor=str(check.objects[-1].number) if check.more else "",
    )


def diagnosis_to_pb(diagnosis: Diagnosis) -> pb.Diagnosis:
    """Every finding of one coordinator."""
    return fill(pb.Diagnosis, diagnosis, checks=[fill(pb.DiagnosisCheck, finding) for finding in diagnosis.findings])
