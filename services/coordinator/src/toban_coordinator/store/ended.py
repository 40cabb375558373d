"""Which attempts write no line any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from toban_domain.outcome import AttemptKey
from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """`last_seq` is None when its executor is gone and never told."""

    key: AttemptKey
    last_seq: int | None


async def ended(t: Tx, log_day: date, keys: Sequence[AttemptKey], *, off_seconds: float) -> list[EndedAttempt]:
    """Those of `keys` (of one day of dispatch) that have ended; an executor is gone when it has been off for `off_seconds`.

    An attempt that this schema has forgotten, and that no live run holds, has ended too.
    """
    params = {
        "log_day": log_day,
        "run_ids": [key.run_id for key in keys],
        "tokens": [key.token for key in keys],
        "off_seconds": off_seconds,
    }
    rows = await t.fetch_all(_sql.ended, params)
    return [EndedAttempt(AttemptKey(row["run_id"], row["token"]), row["last_seq"]) for row in rows]
