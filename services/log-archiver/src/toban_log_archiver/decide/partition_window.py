"""Which days of dispatch may get partitions because a chunk asks for one."""

from __future__ import annotations

from datetime import date, timedelta

# A job may run, and its lines may wait for an archiver, this long.
DAYS_BACK = 31
# PostgreSQL's day of the dispatch is never later than PostgreSQL's day now, but for a restore or a promoted replica.
DAYS_AHEAD = 1
# Made ahead by the loop: a week without a working archiver still finds its partitions.
MADE_AHEAD = 7


def may_make(day: date, *, today: date) -> bool:
    """True when a chunk of this day may still arrive, so that a missing partition is made for it."""
    return today - timedelta(days=DAYS_BACK) <= day <= today + timedelta(days=DAYS_AHEAD)


def ahead(today: date) -> tuple[date, date]:
    """First and last day that always have partitions."""
    return today - timedelta(days=1), today + timedelta(days=MADE_AHEAD)
