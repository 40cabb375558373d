"""How full schema logs is, what that is worth a warning, and which days go early because of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

GB = 1000**3
WARN = 0.8
"""From this part of the budget on there is a warning, and the oldest days are archived before their time."""
FULL = 1.0
AGAIN = 0.95
"""New output is left out from FULL on until the share is below this."""


def is_full(used: float, *, was_full: bool) -> bool:
    """Whether new output is left out; `used` is the part of the budget that is used."""
    return used >= (AGAIN if was_full else FULL)


def due_days(days: Sequence[tuple[date, bool]]) -> list[date]:
    """What is archived now of `days` (the oldest first, and whether each is older than its retention)."""
    return [day for day, is_due in days if is_due]


def early_days(days: Sequence[tuple[date, bool]], *, used: float, today: date) -> list[date]:
    """From WARN on: the days that may go before their time, the oldest first. Those are out whose chunks may still come in numbers.

    One that leaves the database is enough: the next pass sees what it was worth. One that cannot leave must not keep the others there.
    """
    return [day for day, is_due in days if not is_due and (today - day).days > 1] if used >= WARN else []
