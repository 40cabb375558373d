"""`toban limit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli.client import call, connect
from toban_cli.formatting import NOTHING, age, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output, check_path_name
from toban_cli.output import Column, show, show_done, show_one
from toban_cli.report import echo
from toban_cli.tables import facts, table
from toban_cli.watch import Watch, watch

if TYPE_CHECKING:
    from datetime import datetime

LimitName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="job:NAME, pool:NAME, or scope:SCOPE/ID for a tenant's weight.",
        show_default=False,
        callback=check_path_name,
    ),
]
BreakerName = Annotated[
    str, typer.Argument(metavar="NAME", help="job:NAME or pool:NAME.", show_default=False, callback=check_path_name)
]
Level = Annotated[str, typer.Argument(metavar="ok|soft|hard", help="How healthy it is.", show_default=False)]
Ttl = Annotated[
    int, typer.Option("--ttl", metavar="SECONDS", min=1, max=86_400, help="How long the signal holds unless repeated.")
]
Size = Annotated[
    int,
    typer.Argument(
        metavar="N", min=0, max=1_000_000, help="Runs at a time (0 = no limit), size, or weight.", show_default=False
    ),
]


def list_limits(output: Output = Format.TABLE, watch_seconds: Watch = None) -> None:
    """List the limits, how much of each is taken, and what waits.

    Examples:
    toban limit list --watch
    """
    with connect() as client:

        def refresh() -> None:
            found = client.call("Operations.ListLimits", pb.ListLimitsRequest()).limits
            plain, wide = _columns(wall_now())
            show(output, found, table=plain, wide=wide, empty="No limits. Set one with `toban limit set job:NAME N`.")

        watch(refresh, watch_seconds, output)


def get_limit(name: LimitName, output: Output = Format.TABLE) -> None:
    """Show one limit: which runs hold it since when, and which wait for it.

    Examples:
    toban limit get pool:licences
    """
    found = call("Operations.GetLimit", pb.GetLimitRequest(name=name))
    show_one(output, found, page=lambda _: _page(found, wall_now()))


def set_limit(name: LimitName, limit: Size, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Set a limit, at once and without a restart. Runs that are live already go on.

    Examples:
    toban limit set job:etl 3 --reason "the warehouse is slow"
    toban limit set pool:licences 10
    toban limit set scope:account/17 3
    """
    _set(name, output, limit=limit, reason=reason)


def reset_limit(name: LimitName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Remove what was set, with the breaker and the health signal: a job has the limit of its definition again.

    Examples:
    toban limit reset job:etl
    """
    _set(name, output, reset=True, reason=reason)


def open_limit(name: BreakerName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Open the breaker of a job or pool by hand: nothing starts until `close` or `reset`. Needs --reason.

    Examples:
    toban limit open job:etl --reason "the warehouse is down"
    """
    _set_breaker(name, output, open=True, reason=reason)


def close_limit(name: BreakerName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Close a breaker that an operator or failures opened. Runs start again; failures before now no longer count.

    Examples:
    toban limit close job:etl
    """
    _set_breaker(name, output, open=False, reason=reason)


def signal_limit(
    name: BreakerName, level: Level, ttl: Ttl = 60, reason: AuditReason = "", output: Output = Format.TABLE
) -> None:
    """Report how healthy the subject of a limit is: soft leaves 80 % of the limit, hard 50 %. Repeat it before its time is over.

    After `ok`, or when the time is over, 10 % of the limit comes back a minute.

    Examples:
    toban limit signal pool:warehouse soft --ttl 120
    toban limit signal pool:warehouse ok
    """
    request = pb.SignalLimitRequest(name=name, level=level, ttl_seconds=ttl, reason=reason)
    answer = call("Operations.SignalLimit", request).limit
    show_done(output, answer, f"{name}: {_size(answer)}; {answer.held} taken, {answer.waiting} waiting")


def _set_breaker(name: str, output: Format, **change: Any) -> None:

    answer = call("Operations.SetBreaker", pb.SetBreakerRequest(name=name, **change)).limit
    show_done(output, answer, f"{name}: {_size(answer)}; {answer.held} taken, {answer.waiting} waiting")


def _set(name: str, output: Format, **change: Any) -> None:

    answer = call("Operations.SetLimit", pb.SetLimitRequest(name=name, **change)).limit
    show_done(output, answer, f"{name}: {_size(answer)}; {answer.held} taken, {answer.waiting} waiting")


def _size(limit: Any) -> str:
    if limit.effective == -1:
        return "open: nothing starts"
    full = str(limit.limit) if limit.limit else "no limit"
    return full if limit.effective == limit.limit else f"{full} (now {limit.effective})"


def _breaker(limit: Any, now: datetime) -> str:
    if not limit.breaker:
        return ""
    state = limit.breaker.replace("_", " ")
    return f"{state} since {local(limit.breaker_since, now)} by {limit.breaker_by}: {limit.breaker_reason or 'no reason given'}"


def _signal(limit: Any, now: datetime) -> str:
    if not limit.signal:
        return ""
    why = f": {limit.signal_reason}" if limit.signal_reason else ""
    return f"{limit.signal} until {local(limit.signal_until, now)} by {limit.signal_by}{why}"


def _columns(now: datetime) -> tuple[list[Column], list[Column]]:
    plain = [
        Column("NAME", lambda item: item.name, loose=True),
        Column("LIMIT", _size),
        Column("TAKEN", lambda item: str(item.held)),
        Column("WAITING", lambda item: str(item.waiting)),
        Column("SINCE", lambda item: age(item.waiting_since, now) if item.waiting else NOTHING),
        Column("SET BY", lambda item: item.updated_by or item.source, loose=True),
    ]
    wide = [
        Column("CHANGED", lambda item: age(item.updated_at, now) if item.updated_by else NOTHING),
        Column("REASON", lambda item: item.breaker_reason or item.reason or NOTHING, loose=True),
    ]
    return plain, wide


def _page(found: Any, now: datetime) -> None:
    limit = found.limit
    facts(
        [
            ("Limit", limit.name),
            ("Value", _size(limit)),
            ("Taken", str(limit.held)),
            ("Waiting", str(limit.waiting)),
            ("Set by", limit.updated_by or f"the {limit.source}"),
            ("Changed", local(limit.updated_at, now) if limit.updated_by else ""),
            ("Reason", limit.reason),
            ("Breaker", _breaker(limit, now)),
            ("Health", _signal(limit, now)),
        ]
    )
    for title, runs in (("Held by", found.holders), ("Waiting", found.waiting)):
        if runs:
            echo(f"\n{title}")
            rows = [
                [
                    str(run.run_id),
                    run.job,
                    run.state,
                    str(run.weight),
                    ":".join(part for part in (run.scope, run.scope_id) if part),
                    age(run.since, now),
                    run.executor or NOTHING,
                ]
                for run in runs
            ]
            table(
                ["RUN", "JOB", "STATE", "WEIGHT", "SCOPE", "SINCE", "EXECUTOR"],
                rows,
                loose=["JOB", "SCOPE", "EXECUTOR"],
            )
