"""What has changed between two looks at the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RUNS, CLUSTER, SETTINGS = "runs", "cluster", "settings"
MOST_RUNS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Marks that change with what they stand for. `runs`: those with events of the last seconds, each with these; `more`: not all."""

    cluster: Any
    settings: Any
    runs: Mapping[int, Any]
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Kinds of things, and of runs their numbers: none of them when there are more than MOST_RUNS."""

    kinds: frozenset[str] = frozenset()
    runs: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def plus(self, other: Changes) -> Changes:
        """Both together."""
        runs = self.runs | other.runs
        unnamed = any(RUNS in one.kinds and not one.runs for one in (self, other)) or len(runs) > MOST_RUNS
        return Changes(kinds=self.kinds | other.kinds, runs=frozenset() if unnamed else runs)


ALL = Changes(kinds=frozenset({RUNS, CLUSTER, SETTINGS}))


def changes(before: Look, now: Look) -> Changes:
    """What differs. A run whose last event has left the look has not changed by that."""
    runs = frozenset(run for run, mark in now.runs.items() if before.runs.get(run) != mark)
    named = {CLUSTER: before.cluster != now.cluster, SETTINGS: before.settings != now.settings}
    named[RUNS] = bool(runs) or now.more
    return Changes(
        kinds=frozenset(kind for kind, changed in named.items() if changed),
        runs=frozenset() if now.more or len(runs) > MOST_RUNS else runs,
    )
