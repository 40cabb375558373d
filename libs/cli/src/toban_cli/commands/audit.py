"""`toban audit`: what operators changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toban_cli.formatting import NOTHING, brief, wall_now
from toban_cli.options import Format, Limit, Output
from toban_cli.output import Column, show

if TYPE_CHECKING:
    from datetime import datetime

_NONE = "none"


def list_audit(limit: Limit = 20, output: Output = Format.TABLE) -> None:
    """List what operators changed, newest first.

    Examples:
    toban audit list --limit 100 -o wide
    """
    from toban_cli.client import collect, connect
    from toban_proto.v1.coordinator_pb2 import ListAuditRequest

    with connect() as client:
        entries, _ = collect(lambda page: client.operate("ListAudit", ListAuditRequest(page=page)), "entries", limit)
    table, wide = _audit_columns(wall_now())
    show(output, entries, table=table, wide=wide, empty="No operator has changed anything yet.")


def _audit_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("ID", lambda item: str(item.id)),
        Column("AT", lambda item: brief(item.at, now)),
        Column("ACTOR", lambda item: item.actor),
        Column("ACTION", lambda item: item.action),
        Column("TARGET", lambda item: item.target, loose=True),
        Column("REASON", lambda item: item.reason or NOTHING, loose=True),
    ]
    wide = [Column("CHANGE", lambda item: changes(item.before_json, item.after_json) or NOTHING, loose=True)]
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
