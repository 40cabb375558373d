"""`toban executor` and `toban cluster`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from toban_cli import report
from toban_cli.options import Format, Output


def list_executors(
    every: Annotated[bool, typer.Option("--all", help="Also those that are gone.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """The executors."""
    from toban_cli.client import connect
    from toban_cli.plain import plain_list
    from toban_proto.v1.coordinator_pb2 import ListExecutorsRequest

    with connect() as client:
        executors = client.read("ListExecutors", ListExecutorsRequest(include_off=every)).executors
    if output is Format.JSON:
        report.data(plain_list(executors))
    else:
        _executors(executors)


def status(output: Output = Format.TABLE) -> None:
    """Who leads, who is there, how much waits."""
    from toban_cli.client import connect
    from toban_cli.human import age
    from toban_cli.plain import plain
    from toban_cli.tables import facts, table
    from toban_proto.v1.coordinator_pb2 import GetClusterRequest

    with connect() as client:
        cluster = client.read("GetCluster", GetClusterRequest())
    if output is Format.JSON:
        report.data(plain(cluster))
        return
    now = _server_now(cluster)
    health = _health(cluster.health_json)
    leader = f"{cluster.leader_address} (worker {cluster.leader_worker_id}, epoch {cluster.epoch}, since {age(cluster.leader_since, now)})"
    facts(
        [
            ("Leader", leader if cluster.leader_address else f"none (last epoch {cluster.epoch})"),
            ("Last beat", age(cluster.last_beat_at, now)),
            (
                "Database",
                "settled" if cluster.settled else "not settled: nothing is dispatched until the lease time has passed",
            ),
            ("Health", health),
            ("Runs", f"{cluster.running} running, {cluster.pending} waiting"),
        ]
    )
    rows = [
        [str(item.worker_id), item.node_id, item.address, item.role, item.status, age(item.last_heartbeat_at, now)]
        for item in cluster.coordinators
    ]
    report.say("\nCoordinators")
    table(["ID", "NODE", "ADDRESS", "ROLE", "STATUS", "SEEN"], rows, loose=["NODE", "ADDRESS"], empty="none")
    report.say("\nExecutors")
    _executors(cluster.executors, now)


def _executors(executors: Any, now: Any = None) -> None:
    from toban_cli.human import age
    from toban_cli.tables import table
    from toban_runtime.clock import SystemClock

    moment = now or SystemClock().wall()
    rows = [
        [
            str(item.worker_id),
            item.node_id,
            item.address,
            item.state,
            f"{item.running}/{item.slots}",
            age(item.last_heartbeat_at, moment),
            ",".join(f"{key}={value}" for key, value in sorted(item.labels.items())) or "-",
        ]
        for item in executors
    ]
    headers = ["ID", "NODE", "ADDRESS", "STATE", "RUNNING", "SEEN", "LABELS"]
    table(headers, rows, loose=["NODE", "ADDRESS", "LABELS"], empty="No executors.")


def _server_now(cluster: Any) -> Any:
    """The server's clock, so that ages are right when this machine's is not."""
    from toban_cli.human import to_time
    from toban_runtime.clock import SystemClock

    return to_time(cluster.server_time) or SystemClock().wall()


def _health(text: str) -> str:
    """The overall word, and the checks that are not well."""
    try:
        health = json.loads(text or "{}")
    except ValueError:
        return text
    if not isinstance(health, dict):
        return str(health)
    checks = health.get("checks")
    unwell = [
        f"{name} {check.get('status')} ({check.get('value', '')})"
        for name, check in (checks.items() if isinstance(checks, dict) else ())
        if isinstance(check, dict) and check.get("status") not in (None, "ok")
    ]
    return ": ".join(part for part in (str(health.get("status", "")), ", ".join(unwell)) if part)
