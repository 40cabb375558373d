"""`toban executor` and `toban cluster`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.options import Format, Output
from toban_cli.output import Column, show, show_one
from toban_cli.watch import Watch, watch

if TYPE_CHECKING:
    from datetime import datetime


def list_executors(
    every: Annotated[bool, typer.Option("--all", help="Also those that are gone.")] = False,
    output: Output = Format.TABLE,
    watch_seconds: Watch = None,
) -> None:
    """The executors.

    Examples:
    toban executor list
    toban executor list --all -o wide
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import ListExecutorsRequest

    with connect() as client:

        def look() -> None:
            found = client.read("ListExecutors", ListExecutorsRequest(include_off=every)).executors
            table, wide = executor_columns(_now())
            show(output, found, table=table, wide=wide, empty="No executors.")

        watch(look, watch_seconds, output)


def status(output: Output = Format.TABLE, watch_seconds: Watch = None) -> None:
    """Who leads, who is there, how much waits.

    Examples:
    toban cluster status
    toban cluster status --watch 5
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import GetClusterRequest

    with connect() as client:

        def look() -> None:
            cluster = client.read("GetCluster", GetClusterRequest())
            show_one(
                output, cluster, page=lambda wide: _page(cluster, wide=wide), name=lambda found: found.leader_address
            )

        watch(look, watch_seconds, output)


def executor_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    """The columns of a table of executors, and those that -o wide adds."""
    from toban_cli.formatting import NOTHING, age, day, size

    table = [
        Column("ID", lambda item: str(item.worker_id)),
        Column("NODE", lambda item: item.node_id, name=True),
        Column("ADDRESS", lambda item: item.address, loose=True),
        Column("STATE", _executor_state),
        Column("RUNNING", lambda item: f"{item.running}/{item.slots}"),
        Column("SEEN", lambda item: age(item.last_heartbeat_at, now)),
        Column(
            "LABELS", lambda item: ",".join(f"{k}={v}" for k, v in sorted(item.labels.items())) or NOTHING, loose=True
        ),
    ]
    wide = [
        Column("VERSION", lambda item: item.version or NOTHING),
        Column("REGISTERED", lambda item: age(item.registered_at, now)),
        Column("LEASE", lambda item: f"{item.lease_ms / 1000:g}s" if item.lease_ms else NOTHING),
        Column("CLOCK", _skew),
        Column("DISK FREE", lambda item: size(item.disk_free_bytes) if item.disk_free_bytes else NOTHING),
        Column("CERTIFICATE ENDS", lambda item: day(item.certificate_not_after, now)),
        Column("WHY", lambda item: item.off_reason or item.drain_reason or NOTHING, loose=True),
    ]
    return table, wide


def _executor_state(executor: Any) -> str:
    return f"{executor.state}, drained" if executor.drained else str(executor.state)


def _skew(process: Any) -> str:
    """How far a clock is off, seconds."""
    return f"{process.clock_skew_seconds:+.3f}s" if process.HasField("clock_skew_seconds") else "-"


def _member_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    from toban_cli.formatting import NOTHING, age, day

    table = [
        Column("ID", lambda item: str(item.worker_id)),
        Column("NODE", lambda item: item.node_id, name=True),
        Column("ADDRESS", lambda item: item.address, loose=True),
        Column("ROLE", lambda item: item.role),
        Column("STATUS", lambda item: item.status),
        Column("SEEN", lambda item: age(item.last_heartbeat_at, now)),
    ]
    wide = [
        Column("VERSION", lambda item: item.version or NOTHING),
        Column("CLOCK", _skew),
        Column("CERTIFICATE ENDS", lambda item: day(item.certificate_not_after, now)),
    ]
    return table, wide


def _page(cluster: Any, *, wide: bool) -> None:
    from toban_cli.formatting import age
    from toban_cli.tables import facts
    from toban_fencing.operator import SeenLeader

    output = Format.WIDE if wide else Format.TABLE
    now = _server_now(cluster)
    leader = SeenLeader(epoch=cluster.epoch, worker_id=cluster.leader_worker_id, address=cluster.leader_address)
    unsettled = "not settled: nothing is dispatched until the lease time has passed"
    facts(
        [
            ("Leader", leader.describe(since=age(cluster.leader_since, now))),
            ("Last beat", age(cluster.last_beat_at, now)),
            ("Database", "settled" if cluster.settled else unsettled),
            ("Health", _health(cluster.health_json)),
            ("Runs", f"{cluster.running} running, {cluster.pending} waiting"),
        ]
    )
    report.say("\nCoordinators")
    table, more = _member_columns(now)
    show(output, cluster.coordinators, table=table, wide=more, empty="none")
    report.say("\nExecutors")
    table, more = executor_columns(now)
    show(output, cluster.executors, table=table, wide=more, empty="No executors.")


def _server_now(cluster: Any) -> datetime:
    """The server's clock, so that ages are right when this machine's is not."""
    from toban_cli.formatting import to_time

    return to_time(cluster.server_time) or _now()


def _now() -> datetime:
    from toban_runtime.clock import SystemClock

    return SystemClock().wall()


def _health(text: str) -> str:
    """The overall word, and the checks that are not well."""
    from toban_domain.finding import format_check_value

    try:
        health = json.loads(text or "{}")
    except ValueError:
        return text
    if not isinstance(health, dict):
        return str(health)
    checks = health.get("checks")
    unwell = [
        f"{name} {check.get('status')} ({format_check_value(check.get('value'))})"
        for name, check in (checks.items() if isinstance(checks, dict) else ())
        if isinstance(check, dict) and check.get("status") not in (None, "ok")
    ]
    return ": ".join(part for part in (str(health.get("status", "")), ", ".join(unwell)) if part)
