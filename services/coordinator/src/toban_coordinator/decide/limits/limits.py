"""Which due runs may start under the limits, what the others wait for, and how many waiting ones resume (docs/limits.md).

A run takes all that it needs or nothing, so no two runs can wait for each other. A run that waits for a limit is resumed before a new run may
take it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toban_coordinator.decide.limits.breaker import Breaker, reduced
from toban_domain.concurrency import BreakerSpec, ConcurrencySpec, short
from toban_domain.job import JobSpec
from toban_domain.payload import canonical_json
from toban_domain.placement import DueRun

CLOSED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a run takes of one limit. `capacity` -1 = nothing starts; `window` seconds: starts count, not runs (0 = runs).

    `why`: what makes the capacity less than the limit, for people.
    """

    key: str
    capacity: int
    weight: int = 1
    window: int = 0
    why: str = ""
    is_ignored: bool = False

    def ignored(self) -> Need:
        """The same for a run that starts whatever the limit says; it counts all the same. A group is no limit, and is never ignored."""
        return self if self.key.startswith("group:") else replace(self, is_ignored=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How a limit is used, counted from live runs. `reserved`: by resumed runs that are not sent; `waiting`: runs are deferred on it."""

    held: int = 0
    reserved: int = 0
    waiting: bool = False
    starts: int = 0

    def taken(self, need: Need) -> int:
        """How much of the limit is taken: starts, or runs by their weights."""
        return self.starts if need.window else self.held


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentJob:
    """The concurrency section of a definition's current version; version 0 = there is no such definition."""

    version: int = 0
    concurrency: ConcurrencySpec = field(default_factory=ConcurrencySpec)


@dataclass(frozen=True, slots=True)
class LimitTable:
    """All limits: what operators set (by name, as in `toban limit list`), and the current versions of jobs that have some.

    `breakers`: of jobs and pools, the closed ones too; `factors`: how much health signals leave of limits, where that is less than all.
    """

    values: Mapping[str, int] = field(default_factory=dict)
    jobs: Mapping[str, CurrentJob] = field(default_factory=dict)
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)

    def concerns(self, spec: JobSpec) -> bool:
        """Whether a run of `spec` must be looked at before it starts: it has limits, or its policy is about a group."""
        current = self.jobs.get(spec.name)
        return (
            not spec.concurrency.is_plain
            or self.values.get(f"job:{spec.name}", 0) != 0
            or self._is_broken(f"job:{spec.name}")
            or (current is not None and not current.concurrency.is_plain)
        )

    def needs_of(self, runs: Iterable[tuple[DueRun, JobSpec]]) -> dict[int, tuple[Need, ...]]:
        """`needs` of each run, by its id. Runs of one definition share them where neither a group nor a value of the payload tells them apart."""
        shared: dict[tuple[int, int], tuple[Need, ...]] = {}
        found = {}
        for run, spec in runs:
            key = (run.definition_id, run.definition_version)
            needs = shared.get(key) if run.group is None else None
            if needs is None:
                needs = self.needs(run, spec)
                if run.group is None and not any(need.key.startswith("key:") for need in needs):
                    shared[key] = needs
            found[run.id] = needs
        return found

    def needs(self, run: DueRun, spec: JobSpec) -> tuple[Need, ...]:
        """What `run` has to take before it starts, in the order in which a refusal names it."""
        current = self.jobs.get(spec.name)
        # A version that is newer than what is known here brings its own limits.
        limits = spec.concurrency
        if current is not None and current.version >= run.definition_version:
            limits = current.concurrency
        found = []
        if run.group is not None and spec.concurrency.is_serial:
            found.append(Need(key=f"group:{spec.name}/{run.group}", capacity=1))
        job = self._need(f"job:{spec.name}", self.values.get(f"job:{spec.name}", limits.limit))
        if job.capacity:
            found.append(job)
        if limits.limit_per_key:
            value = canonical_json(json.loads(run.payload).get(limits.limit_key))
            found.append(Need(key=f"key:{spec.name}/{short(value)}", capacity=limits.limit_per_key))
        for pool, weight in sorted(limits.pools.items()):
            found.append(self._need(f"pool:{pool}", self.values.get(f"pool:{pool}", 0), weight=weight))
        if limits.start_rate.runs:
            rate = limits.start_rate
            found.append(Need(key=f"rate:{spec.name}", capacity=rate.runs, window=rate.per_seconds))
        return tuple(found)

    def limit_of(self, key: str) -> Need | None:
        """The limit that `key` names, for a weight of 1; None when there is none any more."""
        kind, _, rest = key.partition(":")
        limits = self.jobs.get(rest.partition("/")[0], CurrentJob()).concurrency
        if kind == "group":
            return Need(key=key, capacity=1)
        if kind == "pool":
            return self._need(key, self.values.get(key, 0))
        if kind == "rate":
            rate = limits.start_rate
            return Need(key=key, capacity=rate.runs, window=rate.per_seconds) if rate.runs else None
        if kind == "key":
            return Need(key=key, capacity=limits.limit_per_key) if limits.limit_per_key else None
        need = self._need(key, self.values.get(key, limits.limit))
        return need if need.capacity else None

    def value_of(self, key: str) -> int:
        """The limit without its breaker and its health signal, or the weight of a scope; 0 = there is none."""
        need = replace(self, breakers={}, factors={}).limit_of(key)
        return self.values.get(key, 0) if need is None else need.capacity

    def watched(self) -> dict[str, BreakerSpec]:
        """Breakers that a step may change: those of jobs that define one, and those that are not closed."""
        found = {f"job:{name}": job.concurrency.breaker for name, job in self.jobs.items()}
        return {
            key: found.get(key, BreakerSpec())
            for key in {*found, *self.breakers}
            if (key in found and found[key].failure_ratio) or self._is_broken(key)
        }

    def _is_broken(self, key: str) -> bool:
        return key in self.breakers and self.breakers[key].state != "closed"

    def _need(self, key: str, limit: int, *, weight: int = 1) -> Need:
        """What is left of a limit under its breaker and its health signal."""
        breaker, factor = self.breakers.get(key), self.factors.get(key, 1.0)
        if breaker is not None and breaker.state == "open":
            return Need(key=key, capacity=CLOSED, weight=weight, why=f"its breaker is open: {breaker.reason}")
        if breaker is not None and breaker.state == "half_open" and limit != CLOSED:
            return Need(key=key, capacity=1, weight=weight, why="its breaker is half open, and one run probes")
        if factor < 1.0:
            why = f"a health signal leaves {factor:.0%} of {limit}"
            return Need(key=key, capacity=reduced(limit, factor), weight=weight, why=why)
        return Need(key=key, capacity=limit, weight=weight)


def job_of(key: str) -> str:
    """The job that a limit belongs to; "" for a pool."""
    kind, _, rest = key.partition(":")
    return "" if kind == "pool" else rest.partition("/")[0]


def room(need: Need, usage: Usage) -> int:
    """How much of a limit is free; never negative."""
    if need.capacity == CLOSED:
        return 0
    taken = usage.taken(need)
    return max(0, need.capacity - taken - usage.reserved)


def leaves_half(need: Need, usage: Usage) -> bool:
    """Whether half of a limit is free when `need` is taken as well, and no run waits for it."""
    return not usage.waiting and 2 * (usage.taken(need) + usage.reserved + need.weight) <= need.capacity


class Admission:
    """Admits the runs of one batch, in their order, to what is free. `ample`: half of each limit stays free whatever of them is sent."""

    def __init__(
        self, needs: Mapping[int, tuple[Need, ...]], usage: Mapping[str, Usage], *, ample: bool = False
    ) -> None:
        self.needs = needs
        self.ample = ample
        # Limits that runs of this batch wait for.
        self.waited_for: set[str] = set()
        self._usage = dict(usage)

    def blocked_by(self, run: DueRun) -> Need | None:
        """The first limit that `run` finds no room in; None when it may start."""
        if self.ample:
            return None
        return next((need for need in self.needs.get(run.id, ()) if not self.admits(run, need)), None)

    def admits(self, run: DueRun, need: Need) -> bool:
        """Whether `run` finds room in a limit that it needs.

        Room that is reserved, and a queue, keep new runs away. A resumed run has had its turn: between those the order of the batch decides,
        so that two of them that need the same limits cannot send each other back.
        """
        if need.is_ignored or run.keeps_limits:
            return True
        usage = self.usage_of(need)
        if run.deferred_on is not None:
            usage = replace(usage, reserved=0, waiting=False)
        return not usage.waiting and need.weight <= room(need, usage)

    def usage_of(self, need: Need) -> Usage:
        """How a limit is used now."""
        return self._usage.get(need.key, Usage())

    def take(self, run: DueRun) -> None:
        """`run` starts. One that goes on after a dispatch is counted already."""
        if run.keeps_limits or self.ample:
            return
        for need in self.needs.get(run.id, ()):
            usage = self._usage.get(need.key, Usage())
            reserved = max(0, usage.reserved - need.weight) if run.deferred_on == need.key else usage.reserved
            self._usage[need.key] = replace(
                usage, reserved=reserved, held=usage.held + need.weight, starts=usage.starts + 1
            )

    def may_hold_early(self, run: DueRun) -> bool:
        """Whether `run` may take its limits while it waits for a slot: where that leaves half of each to others. Never a group, which has one
        place, nor a start rate, which counts a start when it is sent."""
        needs = self.needs.get(run.id, ())
        return all(not need.window and (self.ample or leaves_half(need, self.usage_of(need))) for need in needs)

    def defer(self, need: Need) -> None:
        """A run waits for `need` now: those that come later wait behind it."""
        self.waited_for.add(need.key)
        self._usage[need.key] = replace(self._usage.get(need.key, Usage()), waiting=True)


def keys_of(needs: Iterable[Sequence[Need]]) -> dict[str, int]:
    """Every limit that is named in `needs`, with its window."""
    return {need.key: need.window for some in _distinct(needs) for need, _ in some}


def together(needs: Iterable[Sequence[Need]]) -> dict[str, tuple[Need, int]]:
    """By limit: what all of `needs` take of it, of the smallest capacity that one of them names, and how many they are."""
    found: dict[str, tuple[Need, int]] = {}
    for some in _distinct(needs):
        for need, times in some:
            before, count = found.get(need.key, (replace(need, weight=0), 0))
            capacity, weight = min(before.capacity, need.capacity), before.weight + need.weight * times
            found[need.key] = replace(before, capacity=capacity, weight=weight), count + times
    return found


def _distinct(needs: Iterable[Sequence[Need]]) -> Iterable[list[tuple[Need, int]]]:
    """Each sequence once, its needs with the number of times that it was there: runs share them."""
    kept = list(needs)
    counts = Counter(map(id, kept))
    return [[(need, counts[one]) for need in some] for one, some in {id(some): some for some in kept}.items()]


def waits_for(need: Need, usage: Usage | None = None) -> str:
    """Why a run waits, for people."""
    kind, _, name = need.key.partition(":")
    used = f" ({usage.taken(need)} of {need.capacity} are taken)" if usage else ""
    if need.why:
        return f"limit {need.key}: {need.why}{used if need.capacity != CLOSED else ''}"
    if need.capacity == CLOSED:
        return f"limit {need.key} is -1: nothing starts; `toban limit get {need.key}` says why"
    if kind == "group":
        return f"another run of its group {name.partition('/')[2]} has not ended"
    if kind == "pool" and need.capacity == 0:
        return f"there is no pool {name!r}; make it with `toban limit set {need.key} SIZE`"
    if kind == "rate":
        return f"job {name} starts at most {need.capacity} runs in {need.window} s{used}"
    if need.weight > 1:
        return f"limit {need.key} has no room for a weight of {need.weight}{used}"
    return f"limit {need.key} is reached{used}"
