"""For which times a run on demand may be made."""

from __future__ import annotations

from datetime import datetime, timedelta

# A caller whose clock is this far behind, or whose call took this long, meant now.
LATE = timedelta(seconds=60)
# What is further ahead is for a schedule with `start`.
AHEAD = timedelta(days=366)


def refusal(at: datetime, now: datetime) -> str:
    """Why no run may be made for `at`, and what to do; "" when one may. A time at most LATE ago is as good as now."""
    if at < now - LATE:
        late = timedelta(seconds=int((now - at).total_seconds()))
        return f"scheduled_for {at.isoformat()} is in the past (by {late}); leave it out to start now"
    if at > now + AHEAD:
        return f"scheduled_for {at.isoformat()} is more than {AHEAD.days} days ahead; apply a schedule with `start` and `end`"
    return ""
