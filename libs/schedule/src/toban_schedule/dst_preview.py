"""The next change of the clocks that touches a schedule, before it comes: what `schedule add` and `apply` say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile

from toban_schedule.annotated_slots import clocks
from toban_schedule.rule import At, Rule

_LOOK_AHEAD = timedelta(days=366)
_SECOND = timedelta(seconds=1)
_GAPS = {
    "shift": "runs as much later as the clock jumps",
    "run_after": "runs when the gap is over",
    "skip": "is left out",
}
_FOLDS = {"first": "runs the first time", "second": "runs the second time", "both": "runs both times"}


def next_dst_change(rule: Rule, after: datetime) -> str:
    """The first change of the clocks within a year after `after` that leaves out or repeats a local time of the rule, and what its policy
    does: "2026-03-29: 02:30 does not exist, runs ... (gap: shift)". "" when there is none, and for rules that know no policy."""
    if not isinstance(rule.source, At) or rule.source.cron.every_hour:
        return ""
    at = max(after.astimezone(UTC), rule.start) if rule.start is not None else after.astimezone(UTC)
    until = at + _LOOK_AHEAD if rule.end is None else min(at + _LOOK_AHEAD, rule.end)
    while (change := rule.source.clock.next_change(at, until)) is not None:
        if said := _told(rule.source, change):
            return said
        at = change
    return ""


def _told(at: At, change: datetime) -> str:
    begin, end = at.clock.changed_walls(change)
    walls = list(takewhile(lambda wall: wall < end, at.cron.walls(begin - _SECOND)))
    if not walls:
        return ""
    one = len(walls) == 1
    if at.clock.exists(walls[0]):
        what, policy = f"{'comes' if one else 'come'} twice", f"{_FOLDS[at.clock.fold]} (fold: {at.clock.fold})"
    else:
        what, policy = f"{'does' if one else 'do'} not exist", f"{_GAPS[at.clock.gap]} (gap: {at.clock.gap})"
    return f"{begin:%Y-%m-%d}: {clocks(walls)} {what}, {policy if one else _plural(policy)}"


def _plural(policy: str) -> str:
    return policy.replace("runs ", "run ", 1).replace("is left", "are left", 1)
