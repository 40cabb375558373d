"""`toban cluster`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, connect
from toban_cli.commands.executors import clock_skew, executor_columns
from toban_cli.formatting import NOTHING, age, day, to_time, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output, Yes, confirm
from toban_cli.output import Column, show, show_done, show_one
from toban_cli.param_types import LARGEST
from toban_cli.watch import Watch, watch

if TYPE_CHECKING:
    from datetime import datetime

Epoch = Annotated[
    int | None,
    typer.Option(
        "--epoch", min=1, max=LARGEST, metavar="N", help="Only if this epoch still leads (default: the current one)."
    ),
]
ClaimedEpoch = Annotated[
    int,
    typer.Argument(min=1, max=LARGEST, metavar="EPOCH", help="The epoch in the executor's log and in `toban doctor`."),
]
# The server waits for the next term for 10 s.
DEMOTE_SECONDS = 15.0


def status(output: Output = Format.TABLE, watch_seconds: Watch = None) -> None:
    """Show the leader, the coordinators, the executors, and how many runs wait.

    Examples:
    toban cluster status
    toban cluster status --watch 5
    """
    with connect() as client:

        def refresh() -> None:
            cluster = client.call("JobReader.GetCluster", pb.GetClusterRequest())
            show_one(
                output, cluster, page=lambda wide: _page(cluster, wide=wide), name=lambda found: found.leader_address
            )

        watch(refresh, watch_seconds, output)


def demote(epoch: Epoch = None, reason: AuditReason = "", yes: Yes = False, output: Output = Format.TABLE) -> None:
    """Make the leader step down, so that another coordinator leads. Runs are not affected.

    A single coordinator leads again after two seconds.

    Examples:
    toban cluster demote --reason "patching host-a" --yes
    """
    from toban_fencing.operator import SeenLeader
    from toban_runtime.clock import SystemClock

    clock = SystemClock()
    with connect() as client:
        cluster = client.call("JobReader.GetCluster", pb.GetClusterRequest())
        before = SeenLeader(epoch=cluster.epoch, worker_id=cluster.leader_worker_id, address=cluster.leader_address)
        if not yes:
            confirm(f"{before} leads. Demote it?", "the demotion")
        begun = clock.monotonic()
        request = pb.DemoteLeaderRequest(epoch=epoch or before.epoch, reason=reason)
        answer = client.call("Operations.DemoteLeader", request, timeout=DEMOTE_SECONDS)
        seconds = clock.monotonic() - begun
    after = SeenLeader(epoch=answer.new_epoch, worker_id=answer.leader_worker_id, address=answer.leader_address)
    lines = [f"before: {before}", f"now:    {after}", f"took:   {seconds:.2f}s"]
    show_done(output, answer, lines, name=lambda done: str(done.new_epoch))


def adopt_epoch(epoch: ClaimedEpoch, reason: AuditReason = "", yes: Yes = False, output: Output = Format.TABLE) -> None:
    """Accept the epoch of an executor that cannot prove it (EPOCH_UNPROVEN).

    The next leader gets an epoch above it, so that the executor may register again. This consumes generations of epochs, of which a cluster
    has 4095. For about one lease (executor_lease_seconds) nothing is dispatched. It works without a leader.

    Examples:
    toban cluster adopt-epoch 13510798882111488 --reason "restored from the backup of Monday" --yes
    """
    if not yes:
        confirm(f"Adopt epoch {epoch}? The leader is replaced, and nothing is dispatched for one lease.", "this")
    answer = call("Operations.AdoptEpoch", pb.AdoptEpochRequest(epoch=epoch, reason=reason))
    lines = [
        f"before: epoch {answer.epoch_before}",
        f"now:    epoch {answer.epoch_after}",
        f"used:   {answer.generations_consumed} generations, {answer.generations_left} left",
    ]
    show_done(output, answer, lines, name=lambda done: str(done.epoch_after))


def _member_columns(now: datetime) -> tuple[list[Column], list[Column]]:
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
        Column("CLOCK", clock_skew),
        Column("CERTIFICATE ENDS", lambda item: day(item.certificate_not_after, now)),
    ]
    return table, wide


def _page(cluster: Any, *, wide: bool) -> None:
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
            ("Sub-leader", _subleaders(cluster.coordinators)),
            ("Database", "settled" if cluster.settled else unsettled),
            ("Health", _health(cluster.health_json)),
            ("Runs", f"{cluster.running} running, {cluster.pending} waiting"),
        ]
    )
    report.echo("\nCoordinators")
    table, more = _member_columns(now)
    show(output, cluster.coordinators, table=table, wide=more, empty="none")
    report.echo("\nExecutors")
    table, more = executor_columns(now)
    show(output, cluster.executors, table=table, wide=more, empty="No executors.")


def _subleaders(coordinators: Any) -> str:
    """The sub-leaders that are there: one a node, preferably on other nodes than the leader's."""
    found = [item for item in coordinators if item.role == "subleader" and item.status == "ok"]
    return ", ".join(f"{item.address} on {item.node_id}" for item in found) or "none"


def _server_now(cluster: Any) -> datetime:
    """The server's clock, so that ages are right when this machine's is not."""
    return to_time(cluster.server_time) or wall_now()


def _health(text: str) -> str:
    """The overall status, and the checks that are not ok."""
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
