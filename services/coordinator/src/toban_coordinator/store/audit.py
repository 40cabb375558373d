"""What operators did: who, what, to what, before and after, and why. Rows are only ever added."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAction:
    """One action. `target` names what it was about ("setting leader_tick_seconds", "executor 5"); None: nothing to say before or after."""

    actor: str
    action: str
    target: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = ""


async def note(t: Tx, action: AdminAction) -> None:
    """Write it down in the transaction that does it."""
    params = {
        "actor": action.actor,
        "action": action.action,
        "target": action.target,
        "before": _json(action.before),
        "after": _json(action.after),
        "reason": action.reason,
    }
    await t.execute(_sql.note, params)


async def note_all(t: Tx, actions: Sequence[AdminAction]) -> None:
    """Several at once, in their order."""
    await t.execute(_sql.note_all, {"actions": json.dumps([asdict(action) for action in actions])})


async def page(t: Tx, *, below: int, limit: int) -> list[Row]:
    """Actions with an id below `below`, newest first; `before` and `after` as JSON text, empty for none."""
    return await t.fetch_all(_sql.page, {"below": below, "limit": limit})


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(dict(value))
