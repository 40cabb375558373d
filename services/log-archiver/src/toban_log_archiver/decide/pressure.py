"""How full schema logs is, what that is worth a warning, and which days go early because of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

GB = 1000**3
ALARM = 0.8
"""From this part of the budget on there is a warning, and the oldest days are archived before their time."""
FULL = 1.0
AGAIN = 0.95
"""New output is left out from FULL on until the share is below this."""


def is_full(used: float, *, was_full: bool) -> bool:
    """Whether new output is left out; `used` is the part of the budget that is used."""
    return used >= (AGAIN if was_full else FULL)


def due_days(days: Sequence[tuple[date, bool]], *, used: float, today: date) -> list[date]:
    """What is archived now of `days` (the oldest first, and whether each is older than its retention).

    From ALARM on that is one more day: the oldest one whose chunks can no longer come in numbers. The next pass sees what it was worth.
    """
    due = [day for day, is_due in days if is_due]
    early = [day for day, is_due in days if not is_due and (today - day).days > 1]
    return due + early[:1] if used >= ALARM else due
