"""`toban audit list`: who started or changed what, and from where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli.client import collect, connect
from toban_cli.formatting import NOTHING, brief, wall_now
from toban_cli.messages import pb
from toban_cli.options import Format, Limit, Output
from toban_cli.output import Column, show
from toban_cli.times import read_time_bound

if TYPE_CHECKING:
    from datetime import datetime

_NONE = "none"
# A filter without many hits reads the whole log.
FILTER_SECONDS = 30.0


Actor = Annotated[
    str,
    typer.Option(
        "--actor", metavar="ACTOR", help='Only actions of ada, "user ada" (with API tokens), or another actor.'
    ),
]
Action = Annotated[
    str,
    typer.Option(
        "--action", metavar="ACTION", help="Only this action, such as run.cancel, or those that contain this term."
    ),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="TARGET",
        help='Only those on this target, such as "run 7", job:backup, or those whose name contains this term.',
    ),
]
From = Annotated[str, typer.Option("--from", metavar="ADDRESS", help="Only those from this IP address.")]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help='Only later: 2h (ago), "2026-12-01 09:00", a date.')
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Only earlier.")]


def list_audit(
    actor: Actor = "",
    action: Action = "",
    target: Target = "",
    address: From = "",
    since: Since = "",
    until: Until = "",
    limit: Limit = 20,
    output: Output = Format.TABLE,
) -> None:
    """List who started or changed what, and from where, newest first.

    Examples:
    toban audit list --limit 100 -o wide
    toban audit list --actor "user ada" --since 2d
    toban audit list --target "run 1207"
    """
    wanted = audit_request(actor, action, target, address, since, until)
    with connect() as client:

        def fetch(page: Any) -> Any:
            wanted.page.CopyFrom(page)
            return client.call("Operations.ListAudit", wanted, timeout=FILTER_SECONDS)

        entries, _ = collect(fetch, "entries", limit)
    table, wide = _audit_columns(wall_now())
    show(output, entries, table=table, wide=wide, empty="The audit has no such action.")


def audit_request(actor: str, action: str, target: str, address: str, since: str, until: str) -> Any:
    """The request for rows that fit. Raises INVALID_ARGUMENT for a time that is none."""
    request = pb.ListAuditRequest(actor=actor, action=action, target=target, address=address)
    for name, text in (("since", since), ("until", until)):
        if text:
            getattr(request, name).FromDatetime(read_time_bound(f"--{name}", text, wall_now()))
    return request


def _audit_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("ID", lambda item: str(item.id)),
        Column("AT", lambda item: brief(item.at, now)),
        Column("ACTOR", lambda item: item.actor),
        Column("FROM", lambda item: item.address or NOTHING),
        Column("ACTION", lambda item: item.action),
        Column("TARGET", lambda item: item.target, loose=True),
        Column("REASON", lambda item: item.reason or NOTHING, loose=True),
    ]
    wide = [
        Column("THROUGH", lambda item: item.service or NOTHING),
        Column("CHANGE", lambda item: changes(item.before_json, item.after_json) or NOTHING, loose=True),
    ]
    return table, wide


def changes(before_json: str, after_json: str) -> str:
    """`status: active → paused, version: 1 → 2`; what is new without an arrow. "" when neither is a JSON object with values.

    A key that is only in `before` is left out: entries do not always have the same keys on both sides. Within an object that is on both sides,
    such as a definition, a removed key counts as changed to none.
    """
    before, after = _read(before_json), _read(after_json)
    if not (before and after):
        return ", ".join(f"{path}: {_text(value)}" for path, value in _leaves("", before or after))
    parts = [
        f"{path}: {_text(value)}" for key in after if key not in before for path, value in _leaves(key, after[key])
    ]
    for key in after:
        if key in before:
            parts += _differing(key, before[key], after[key])
    return ", ".join(parts)


def _differing(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            yield from _differing(f"{path}.{key}", before.get(key), after.get(key))
    elif before != after:
        yield f"{path}: {_text(before)} → {_text(after)}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, part)
    elif value not in ({}, ""):
        yield path, value


def _text(value: Any) -> str:
    if value is None:
        return _NONE
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
