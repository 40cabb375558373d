"""What there is to do for all of the leader's loops, by one statement: an idle leader asks this instead of a dozen things."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from toban_store import queries
from toban_store.tx import Tx

_sql = queries.load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What waits: schedules with slots up to `until` (`next_slot`: the earliest slot of all), events, runs that are due up to `until` (`next_due`:
    the earliest time of all), runs that were ordered (to start or to be cancelled) and not confirmed, whatever `reap` takes care of, attempts that
    heartbeats left unresolved, steps that are offered to external workers or claimed by them, runs that limits defer, and rows of the audit that
    are not in its chain."""

    fire: bool
    next_slot: datetime | None
    events: bool
    pending: bool
    next_due: datetime | None
    ordered: bool
    care: bool
    unresolved: bool
    external: bool
    deferred: bool
    unchained: bool


async def read(t: Tx, now: datetime, until: datetime) -> Agenda:
    """The agenda. Raises LookupError when the statement gives no row."""
    row = await t.fetch_one(_sql.agenda, {"now": now, "until": until})
    if row is None:
        raise LookupError("the agenda gave no row")
    return Agenda(**row)
