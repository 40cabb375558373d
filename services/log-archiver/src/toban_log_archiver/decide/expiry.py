"""When what is archived has been kept for long enough."""

from __future__ import annotations

from datetime import date, timedelta

from toban_log_archiver.decide.partition_window import DAYS_BACK


def expires_before(today: date, *, archive_days: int, db_days: int) -> date | None:
    """Objects of days before this one expire; None: never. What the database still keeps is kept by the archive too."""
    return today - timedelta(days=max(archive_days, db_days)) if archive_days else None


def forgotten_before(today: date, *, archive_days: int, db_days: int, history_days: int) -> date | None:
    """Nothing is remembered of attempts of days before this one: their runs are forgotten, and no line of them may come any more."""
    expires = expires_before(today, archive_days=archive_days, db_days=db_days)
    return None if expires is None else min(expires, today - timedelta(days=max(history_days, DAYS_BACK + 1)))
