"""What a coordinator and a log-archiver send to the site, with values that a test may set."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_runtime.clock import SystemClock
from toban_transport.convert import timestamp_to_pb

EPOCH = (1 << 51) | (1 << 27)
TOKEN = EPOCH + 1
# Of one test: `now_of_this_test` renews it, since the site says how long ago a time was.
NOW = SystemClock().wall()
PAGES = [
    "/",
    "/runs",
    "/runs/1",
    "/jobs",
    "/jobs/hello",
    "/schedules",
    "/schedules/hello-often",
    "/executors",
    "/cluster",
    "/runs/timeline",
    "/load",
    "/archive",
    "/audit",
    "/audit/verify",
    "/audit/verify?check=1",
    "/limits",
    "/limits/one?name=pool:licences",
    "/limits/set?name=pool:licences",
    "/limits/reset?name=pool:licences",
    "/limits/open?name=pool:licences",
    "/limits/close?name=pool:licences",
    "/limits/signal?name=pool:licences",
    "/settings",
    "/settings/leader_tick_seconds/change",
    "/runs/1/cancel",
    "/runs/1/kill",
    "/runs/1/declare-lost",
    "/runs/1/note",
    "/runs/1/rerun",
    "/jobs/hello/run",
    "/jobs/hello/delete",
    "/jobs/hello/disable",
    "/jobs/hello/enable",
    "/jobs/hello/versions",
    "/schedules/hello-often/pause",
    "/schedules/hello-often/resume",
    "/executors/3/drain",
    "/executors/3/undrain",
    "/executors/3/detach",
    "/cluster/demote",
    "/runs/cancel?state=FAILED",
    "/runs/rerun",
    "/runs/1/log",
    "/runs/1/log?find=line",
    "/load/month",
    "/load/spread?minute=2026-11-29T18:00",
    "/users",
    "/users/bob",
    "/users/bob/role",
    "/users/bob/join",
    "/users/bob/password",
    "/users/bob/link",
    "/users/bob/unlink",
    "/users/bob/end-sessions",
    "/users/bob/disable",
    "/users/bob/enable",
    "/users/bob/delete",
    "/new/user",
    "/groups",
    "/groups/ops",
    "/groups/ops/join",
    "/groups/ops/leave?user=bob",
    "/groups/ops/delete",
    "/new/group",
    "/rules",
    "/rules?user=bob&action=run&job=hello",
    "/rules/12/remove",
    "/new/rule",
    "/secrets",
    "/secrets/pgpass/set",
    "/secrets/pgpass/delete",
    "/new/secret",
    "/events",
    "/events/emit",
    "/triggers",
    "/triggers/invoice-when-paid",
    "/webhooks",
    "/webhooks/pager",
    "/new/webhook",
    "/webhooks/pager/change",
    "/webhooks/pager/test",
    "/webhooks/pager/redeliver",
    "/webhooks/pager/disable",
    "/webhooks/pager/secret",
    "/webhooks/pager/remove",
    "/webhooks/pager/redeliver?id=12",
    "/incoming",
    "/incoming/repo",
    "/new/hook",
    "/incoming/repo/change",
    "/incoming/repo/test",
    "/incoming/repo/rotate",
    "/incoming/repo/drop",
    "/incoming/repo/disable",
    "/incoming/repo/enable",
    "/incoming/repo/remove",
]
"""Pages of the site, the first twelve refresh a part of themselves."""


@pytest.fixture(autouse=True)
def now_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages tell times of this test, and not of the moment when tests were collected."""
    monkeypatch.setattr(sys.modules[__name__], "NOW", SystemClock().wall())


def stamp(seconds_ago: float = 0.0, at: datetime | None = None) -> Any:
    """A time some seconds before the start of this test."""
    return timestamp_to_pb((at or NOW) - timedelta(seconds=seconds_ago))


def line(seq: int, text: str = "", *, stream: Any = 1, partial: bool = False) -> logs_pb2.LogLine:
    """A line of output."""
    nanos = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp()) * 10**9
    return logs_pb2.LogLine(
        seq=seq, at_unix_nanos=nanos, stream=stream, text=(text or f"line {seq}").encode(), partial=partial
    )


def run(number: int = 1, state: str = "RUNNING", **given: Any) -> pb.Run:
    """A run on executor-1 with one attempt."""
    values: dict[str, Any] = {
        "job": "hello",
        "definition_version": 3,
        "origin": "slot",
        "schedule": "hello-often",
        "attempt": 1,
        "max_attempts": 3,
        "token": TOKEN,
        "executor": "executor-1",
        "payload_json": '{"name": "world"}',
        "scheduled_for": stamp(30),
        "started_at": stamp(29),
        "attempts": [pb.Attempt(token=TOKEN, attempt=1, state=state, executor="executor-1", dispatched_at=stamp(30))],
        "events": [pb.RunEvent(at=stamp(30), type="created", to_state="PENDING", actor="leader")],
    }
    return pb.Run(id=number, state=state, **(values | given))


def audit_entry(**given: Any) -> pb.AuditEntry:
    """What a person behind the site did."""
    values: dict[str, Any] = {
        "id": 4,
        "at": stamp(30),
        "actor": "user ada",
        "action": "drain",
        "target": "executor 5 (host-a)",
        "before_json": '{"drained": false}',
        "after_json": '{"drained": true}',
        "reason": "wrong input",
        "address": "203.0.113.7",
        "service": "admin-web",
    }
    return pb.AuditEntry(**(values | given))


def cluster_message(**given: Any) -> pb.Cluster:
    """A healthy cluster of two coordinators and one executor."""
    values: dict[str, Any] = {
        "epoch": EPOCH,
        "leader_worker_id": 1,
        "leader_address": "127.0.0.1:5000",
        "leader_since": stamp(3600),
        "last_beat_at": stamp(0.2),
        "server_time": stamp(),
        "settled": True,
        "coordinators": [
            pb.Member(worker_id=1, node_id="a", address="127.0.0.1:5000", role="leader", status="ok"),
            pb.Member(worker_id=2, node_id="b", address="127.0.0.1:5001", role="subleader", status="ok"),
        ],
        "executors": [executor_message()],
        "health_json": '{"status": "warning", "checks": {"redis": {"status": "warning", "value": false}}}',
        "running": 4,
        "pending": 5,
    }
    return pb.Cluster(**(values | given))


def overview_message(**given: Any) -> pb.Overview:
    """A failure, a queue, a missed slot, a coming fire and an alert."""
    failure: dict[str, Any] = {"job": "hello", "scope": "system", "runs": 3, "last_run_id": 9, "last_state": "FAILED"}
    missed: dict[str, Any] = {
        "schedule": "hello-often",
        "outcome": "catch_up",
        "slots": 4,
        "last_slot": stamp(600),
        "message": "no leader",
    }
    values: dict[str, Any] = {
        "server_time": stamp(),
        "alerts": [pb.ActiveAlert(name="TobanQueueOld", severity="warning", value=412.0, unit="s")],
        "failures": [
            pb.FailedRuns(
                **failure,
                last_finished_at=stamp(120),
                error_summary="exit code 3",
                reason="exit_code",
                last_line="boom: no",
            )
        ],
        "waiting": [pb.WaitingRuns(kind="executor", runs=5, oldest_seconds=412.0)],
        "missed": [pb.MissedSlots(**missed)],
        "coming": [pb.ComingFire(schedule="hello-often", job="hello", at=stamp(-60), timezone="UTC")],
        "coming_schedules": 1,
    }
    return pb.Overview(**(values | given))


def load_message(**given: Any) -> pb.ComingLoad:
    """A crowded minute, the next one, and a quiet one."""
    moment = stamp().ToDatetime(tzinfo=UTC)
    begin = moment.replace(minute=0, second=0, microsecond=0)
    crowded = begin + timedelta(hours=2)

    def at(moment: datetime) -> Any:
        return timestamp_to_pb(moment)

    named = [pb.LoadSchedule(schedule=f"sync-{n:02}", job="sync", slots=1, version=3) for n in range(3)]
    values: dict[str, Any] = {
        "read_at": stamp(),
        "begin": at(begin),
        "minutes": [
            pb.LoadMinute(at=at(crowded), slots=30),
            pb.LoadMinute(at=at(crowded + timedelta(minutes=1)), slots=6),
            pb.LoadMinute(at=at(crowded + timedelta(hours=3)), slots=1),
        ],
        "crowded": [pb.CrowdedMinute(at=at(crowded), slots=30, schedules=30, named=named)],
        "schedules": 37,
    }
    return pb.ComingLoad(**(values | given))


def archive_message(**given: Any) -> logs_pb2.ArchiveStatusResponse:
    """A day in the archive, one in both places, one that is overdue, and today."""
    day = logs_pb2.ArchiveDay
    values: dict[str, Any] = {
        "days": [
            day(log_day="2026-11-18", archived_objects=3, archived_bytes=5 << 20, expired_objects=1),
            day(log_day="2026-11-19", chunks=4, bytes=4096, archived_objects=2, archived_bytes=3 << 20, due=True),
            day(log_day="2026-11-20", tokens=9, chunks=40, bytes=2 << 20, open_chunks=40, due=True),
            day(log_day="2026-11-21", tokens=2, chunks=5, bytes=512, open_chunks=5),
        ],
        "retention_days": 7,
        "oldest_not_archived": "2026-11-20",
        "database_bytes": 3 << 30,
        "budget_bytes": 50 << 30,
        "bookkeeping_bytes": 7 << 20,
        "last_pass_at": stamp(40),
        "last_pass": "2 objects, 80 chunks, 4096 bytes, 1 days dropped",
        "last_error": "the object store does not answer",
        "holder": "log-archiver-1 (process 7)",
        "bucket": "s3://toban-logs",
    }
    return logs_pb2.ArchiveStatusResponse(**(values | given))


def limit_message(**given: Any) -> pb.Limit:
    """A full pool that runs wait for."""
    values: dict[str, Any] = {
        "name": "pool:licences",
        "limit": 10,
        "effective": 10,
        "held": 10,
        "waiting": 2,
        "waiting_since": stamp(300),
        "source": "operator",
        "reason": "ten licences",
        "updated_by": "user ada",
        "updated_at": stamp(3600),
    }
    return pb.Limit(**(values | given))


def limit_details(limit: pb.Limit) -> pb.GetLimitResponse:
    """A limit with one run that holds it and one that waits for it."""
    values: dict[str, Any] = {"job": "hello", "weight": 1, "scope": "account", "scope_id": "17"}
    return pb.GetLimitResponse(
        limit=limit,
        holders=[pb.LimitRun(run_id=7, state="RUNNING", since=stamp(600), executor="executor-1", **values)],
        waiting=[pb.LimitRun(run_id=8, state="DEFERRED", since=stamp(300), **values)],
    )


def setting_message(**given: Any) -> pb.Setting:
    """A setting that a person has changed."""
    values: dict[str, Any] = {
        "name": "leader_tick_seconds",
        "value_json": "2",
        "default_json": "1.0",
        "unit": "seconds",
        "description": "how often the leader looks for due work",
        "version": 4,
        "minimum": 0.2,
        "maximum": 10,
        "updated_at": stamp(3600),
        "updated_by": "user ada",
        "takes_effect": "within 2 seconds, in every service",
    }
    return pb.Setting(**(values | given))


def executor_message(**given: Any) -> pb.Executor:
    """An executor that accepts runs."""
    values: dict[str, Any] = {
        "worker_id": 3,
        "node_id": "executor-1",
        "address": "127.0.0.1:6000",
        "state": "on",
        "slots": 16,
        "running": 4,
        "labels": {"zone": "north"},
        "isolation": "isolated",
        "isolation_details": ["uids 61000-61003", "pid namespace"],
        "last_heartbeat_at": stamp(1),
    }
    return pb.Executor(**(values | given))


def schedule_message(**given: Any) -> pb.Schedule:
    """A schedule that fires every five seconds."""
    values: dict[str, Any] = {
        "name": "hello-often",
        "job": "hello",
        "enabled": True,
        "status": "active",
        "spec_json": '{"name": "hello-often", "interval_seconds": 5}',
        "timezone": "UTC",
        "rule": "every 5 seconds",
        "next_run_at": stamp(-60),
    }
    return pb.Schedule(**(values | given))


def job_message(**given: Any) -> pb.Job:
    """A job with a schedule and a last run."""
    values: dict[str, Any] = {
        "name": "hello",
        "version": 3,
        "enabled": True,
        "description": "Says hello",
        "spec_json": '{"name": "hello", "steps": []}',
        "schedules": [schedule_message()],
        "last_run": run(7, "SUCCEEDED"),
    }
    return pb.Job(**(values | given))


def user_message(**given: Any) -> pb.User:
    """An operator in a group."""
    values: dict[str, Any] = {
        "name": "bob",
        "role": "operator",
        "enabled": True,
        "display_name": "Bob of operations",
        "has_password": True,
        "groups": ["ops"],
        "created_at": stamp(86_400),
        "created_by": "user ada",
        "last_seen_at": stamp(600),
        "identities": [pb.UserIdentity(issuer="https://id.example.com", subject="8f3c2a")],
    }
    return pb.User(**(values | given))


def rule_message(**given: Any) -> pb.AccessRule:
    """A rule of bob that gives a role for everything."""
    values: dict[str, Any] = {
        "id": 12,
        "user": "bob",
        "effect": "allow",
        "role": "operator",
        "created_at": stamp(86_400),
        "created_by": "user ada",
    }
    return pb.AccessRule(**(values | given))


def denial_message(**given: Any) -> pb.AccessRule:
    """A rule of a group that denies a role for some jobs."""
    selector = pb.AccessSelector(job="payroll", labels={"team": "ops"}, scope="account", scope_id="17")
    values: dict[str, Any] = {"id": 13, "user": "", "group": "ops", "effect": "deny", "selector": selector}
    return rule_message(**(values | given))


def secret_message(**given: Any) -> pb.Secret:
    """A secret of one job, which uses it."""
    values: dict[str, Any] = {
        "name": "pgpass",
        "key_id": "k1",
        "readable": True,
        "jobs": ["hello"],
        "used_by": ["hello"],
        "version": 3,
        "created_at": stamp(86_400),
        "updated_at": stamp(3600),
        "updated_by": "user ada",
        "last_used_at": stamp(300),
    }
    return pb.Secret(**(values | given))


def accounts_responses() -> dict[str, Any]:
    """What a coordinator answers about accounts, groups and rules, by method."""
    return {
        "ListUsers": pb.ListUsersResponse(users=[user_message(), user_message(name="ada", role="admin", groups=[])]),
        "ListGroups": pb.ListGroupsResponse(groups=[pb.Group(name="ops", members=["bob"])]),
        "ListRules": pb.ListRulesResponse(rules=[rule_message(), denial_message()]),
        "May": pb.MayResponse(allowed=True, reason="rule 12 of user bob: allow operator for everything"),
        "AddRule": pb.AddRuleResponse(id=14),
    }


def operations_responses() -> dict[str, Any]:
    """What a coordinator answers about executors, limits and the audit, by method."""
    return {
        "ListExecutors": pb.ListExecutorsResponse(executors=[executor_message()]),
        "ListLimits": pb.ListLimitsResponse(limits=[limit_message()]),
        "GetLimit": limit_details(limit_message()),
        "ListSettings": pb.ListSettingsResponse(settings=[setting_message()]),
        "ListAudit": pb.ListAuditResponse(entries=[audit_entry()], next_cursor="3"),
        "ListSecrets": pb.ListSecretsResponse(secrets=[secret_message()]),
        "VerifyAudit": pb.VerifyAuditResponse(rows=1201, head=f"1205:{'6f' * 32}", unchained=2),
    }
