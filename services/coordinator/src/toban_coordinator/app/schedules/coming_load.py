"""The slots that come in each minute: one reading of all schedules serves all callers for some seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cachetools import LRUCache

from toban_coordinator.decide.schedules import coming_load as decide
from toban_coordinator.decide.schedules.coming_load import Crowded, Firing, Group, Minutes, UnreadableRule, Use
from toban_coordinator.store.schedules import coming_load as store
from toban_coordinator.store.schedules import schedules_edit
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import Clock
from toban_runtime.cooperative_yield import CooperativeYield
from toban_runtime.shared_answer import SharedAnswer
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, autocommit

# A reading is kept for so long, and for KEPT_TIMES as long as it took: pages that stay open cost a small share of a coordinator. For as long again
# it still is the answer, while the next one is made.
KEPT_SECONDS = 5.0
KEPT_TIMES = 20
PAGE = 5_000
MOST_SCHEDULES = 200_000
# Work of one reading for rules that were not seen in this hour: each counts as RULE_COST and its minutes. Two seconds at most.
MOST_WORK = 150_000
RULE_COST = 20
KEPT_RULES = 20_000
# Jobs and scopes that are looked up for a person whose rules leave some of them out.
MOST_USES = 20_000
DEFAULT_CROWDED, MAX_CROWDED = 20, 100
DEFAULT_NAMES, MAX_NAMES = 10, 200

Seen = Callable[[Sequence[Use]], Awaitable[frozenset[Use] | None]]
"""Which of these jobs and scopes a person may see; None = all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingLoad:
    """Minutes are counted from `begin`; `slots` has those with slots."""

    read_at: datetime
    begin: datetime
    slots: dict[int, int]
    crowded: Sequence[Crowded]
    schedules: int
    left_out: int
    unreadable: int


@dataclass(slots=True, kw_only=True)
class _Reading:
    """All schedules that fire in the day from `begin` on, grouped by their minutes."""

    read_at: datetime
    begin: datetime
    groups: list[Group]
    uses: Sequence[Use] = ()
    left_out: int = 0
    unreadable: int = 0

    @property
    def first(self) -> int:
        """The first minute that is still to come."""
        return (self.read_at - self.begin) // decide.MINUTE + 1


class ComingLoads:
    """Readings, and what callers see of them."""

    def __init__(self, *, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._reading = SharedAnswer(
            self._fresh, clock, keep=lambda took: max(KEPT_SECONDS, KEPT_TIMES * took), serve_old=True
        )
        self._rules: LRUCache[str, Minutes] = LRUCache(KEPT_RULES)
        self._rules_of: datetime | None = None

    async def get(self, *, seen: Seen, crowded: int = 0, names: int = 0, minute: datetime | None = None) -> ComingLoad:
        """The load, with what fires in the most crowded minutes or in `minute`. Raises INVALID_ARGUMENT, StoreError."""
        crowded = _checked("crowded", crowded, DEFAULT_CROWDED, MAX_CROWDED)
        names = _checked("names", names, DEFAULT_NAMES, MAX_NAMES)
        reading = await self._reading.get()
        looked_up = reading.uses[:MOST_USES]
        allowed = await seen(looked_up)
        groups, left_out = reading.groups, reading.left_out
        if allowed is not None:
            groups = decide.visible(reading.groups, allowed)
            left_out += decide.schedules_of(reading.groups, frozenset(reading.uses[MOST_USES:]))
        slots = decide.slots_by_minute(groups, reading.first)
        if minute is None:
            wanted = decide.most_crowded(slots, crowded)
        else:
            wanted = [one for one in [(minute - reading.begin) // decide.MINUTE] if one in slots]
        return ComingLoad(
            read_at=reading.read_at,
            begin=reading.begin,
            slots=slots,
            crowded=[decide.crowded(groups, one, names) for one in wanted],
            schedules=decide.schedules_from(groups, reading.first),
            left_out=left_out,
            unreadable=reading.unreadable,
        )

    async def _fresh(self) -> _Reading:
        async with autocommit(self._pool) as t:
            return await self._read(t)

    async def _read(self, t: Tx) -> _Reading:
        now = await schedules_edit.moment(t)
        begin = now.replace(minute=0, second=0, microsecond=0)
        until = begin + timedelta(minutes=decide.MINUTES)
        if self._rules_of != begin:
            self._rules.clear()
            self._rules_of = begin
        reading = _Reading(read_at=now, begin=begin, groups=[])
        work = _Work(reading=reading, rules=self._rules, pause=CooperativeYield(self._clock))
        after, rows = "", 0
        while rows < MOST_SCHEDULES:
            page = await store.page(t, until=until, after=after, limit=min(PAGE, MOST_SCHEDULES - rows))
            if not page:
                break
            after, rows = page[-1]["name"], rows + len(page)
            await work.add(page)
        else:
            reading.left_out += await store.rest(t, until=until, after=after)
        reading.groups = [Group(minutes, firings) for minutes, firings in work.found.values() if firings]
        reading.uses = list(work.uses)
        return reading


class _Work:
    """Groups rows by the minutes of their rules, which are computed once each as long as MOST_WORK allows."""

    def __init__(self, *, reading: _Reading, rules: LRUCache[str, Minutes], pause: CooperativeYield) -> None:
        self._reading = reading
        self._rules = rules
        self._pause = pause
        self._left = MOST_WORK
        # By the key of the rule.
        self.found: dict[str, tuple[Minutes, list[Firing]]] = {}
        # One object for all that are equal.
        self.uses: dict[Use, Use] = {}

    async def add(self, rows: Sequence[Row]) -> None:
        """Rows of a page, in the order of their names."""
        for row in rows:
            if row["enabled"]:
                self._add(row)
            await self._pause.yield_if_due()

    def _add(self, row: Row) -> None:
        name = row["name"]
        try:
            key = decide.rule_key(row["rule"], name)
            group = self.found.get(key)
            if group is None:
                minutes = self._minutes(key)
                if minutes is None:
                    self._reading.left_out += 1
                    return
                group = self.found[key] = (minutes, [])
        except UnreadableRule:
            self._reading.unreadable += 1
            return
        if group[0]:
            use = Use(row["job"], row["scope"], row["scope_id"])
            group[1].append(Firing(name, row["version"], self.uses.setdefault(use, use)))

    def _minutes(self, key: str) -> Minutes | None:
        """None when no work is left for it. Raises UnreadableRule."""
        minutes = self._rules.get(key)
        if minutes is None and self._left > 0:
            minutes = self._rules[key] = decide.minutes_of(key, self._reading.begin)
            self._left -= RULE_COST + len(minutes)
        return minutes


def _checked(field: str, given: int, default: int, most: int) -> int:
    if not 0 <= given <= most:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{field} is {given}; use 1 to {most}")
    return given or default
