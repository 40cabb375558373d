"""What can be done with a limit, and why runs wait for it."""

from __future__ import annotations

from typing import Protocol

SETTABLE = ("job", "pool", "scope")
"""Kinds whose value an operator sets; scopes have a weight, the runs in each of their turns."""
WITH_BREAKER = ("job", "pool")
ACTIONS = ("set", "reset", "open", "close", "signal")
WHYS = ("open", "half_open", "stopped", "no_pool", "reduced", "full", "turn")
LEVELS = ("soft", "hard", "ok")


class LimitFacts(Protocol):
    """A limit as coordinators describe it (message Limit)."""

    @property
    def name(self) -> str: ...
    @property
    def limit(self) -> int: ...
    @property
    def effective(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def source(self) -> str: ...
    @property
    def breaker(self) -> str: ...
    @property
    def signal(self) -> str: ...


def kind_of(name: str) -> str:
    """job | key | pool | rate | group | scope."""
    return name.partition(":")[0]


def why_waits(one: LimitFacts) -> str:
    """Why runs wait for a limit, one of WHYS: `turn` where nothing stops them but the order of the queue and the room that they need."""
    if one.breaker in ("open", "half_open"):
        return one.breaker
    if one.effective < 0:
        return "stopped"
    if one.effective == 0:
        return "no_pool" if kind_of(one.name) == "pool" else "turn"
    if one.held < one.effective:
        return "turn"
    return "reduced" if one.effective < one.limit else "full"


def actions(one: LimitFacts) -> list[str]:
    """Those of ACTIONS that its kind and state allow."""
    kind = kind_of(one.name)
    if kind not in SETTABLE:
        return []
    stored = one.source == "operator" or bool(one.breaker or one.signal)
    found = ["set", *(["reset"] if stored else [])]
    if kind in WITH_BREAKER:
        found += (["open"] if one.breaker != "open" else []) + (
            ["close"] if one.breaker in ("open", "half_open") else []
        )
        found += ["signal"] if one.effective else []
    return found
