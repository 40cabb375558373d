"""What needs attention: failures, slots that were missed, what comes, and what the alert rules compare. Reads only, each statement bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_domain.run import FAILURES
from toban_store import queries
from toban_store.tx import Row, Tx

_sql = queries.load(__name__)
# Of each state, of the skipped slots, and of the coming ones.
MOST_READ = 1000
MOST_GROUPS = 50
MOST_COMING = 20
MOST_COUNTED = 10_000
# The leader makes runs ahead of their slots: one that is due for so long has none, seconds.
OVERDUE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Failures:
    """Rows by job and scope; `more`: some failures of the day are not in them."""

    rows: Sequence[Row]
    more: bool


async def failures(t: Tx) -> Failures:
    """Runs that failed in the last day."""
    states = list(FAILURES)
    found = await t.fetch_all(_sql.failures, {"states": states, "read": MOST_READ + 1, "limit": MOST_GROUPS + 1})
    read = found[0]["found"] if found else 0
    return Failures(found[:MOST_GROUPS], len(found) > MOST_GROUPS or read > MOST_READ)


async def missed(t: Tx) -> list[Row]:
    """Slots of the last day without a run of their time."""
    return await t.fetch_all(_sql.missed, {"late": OVERDUE_SECONDS, "read": MOST_READ, "limit": MOST_GROUPS})


async def coming(t: Tx) -> tuple[list[Row], int]:
    """The next fires within a day, and how many schedules have one."""
    rows = await t.fetch_all(_sql.coming, {"read": MOST_READ, "limit": MOST_COMING})
    counted = await t.fetch_one(_sql.coming_count, {"limit": MOST_COUNTED})
    return rows, counted["schedules"] if counted else 0


async def alert_facts(t: Tx) -> Row:
    """What the alert rules compare, as far as these tables have it."""
    row = await t.fetch_one(_sql.alert_facts)
    assert row is not None, "migrations make the leader's row"
    return row
