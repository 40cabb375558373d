"""Whose turn it is: weighted round robin over the scopes (tenants) of one rank, which is a priority, and their shares (docs/limits.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

Scope = tuple[str, str]
T = TypeVar("T")
FIRST: Scope = ("", "")


class RoundRobin:
    """Remembers whose turn is next between reads of one queue. `start` is the scope after which a read begins."""

    def __init__(self) -> None:
        self._before = FIRST
        self._last: Scope | None = None
        self._count = 0
        self._weight = 1

    @property
    def start(self) -> Scope:
        """The last scope whose turn is over; one that has not used its weight up comes first again."""
        return self._before if self._last is None or self._count < self._weight else self._last

    def order(
        self, waiting: Iterable[tuple[int, Scope, T]], weights: Mapping[Scope, int] | None = None
    ) -> list[tuple[Scope, T]]:
        """`waiting` (rank, scope, run) in its order of turns, each scope in its own order → the order in which they start."""
        ranks: dict[int, dict[Scope, deque[T]]] = {}
        for rank, scope, item in waiting:
            ranks.setdefault(rank, {}).setdefault(scope, deque()).append(item)
        ordered: list[tuple[Scope, T]] = []
        for rank in sorted(ranks, reverse=True):
            used = self._count if not ordered and self._last is not None else 0
            ordered += _rounds(ranks[rank], weights or {}, self._last, used)
        return ordered

    def started(self, scopes: Sequence[Scope], weights: Mapping[Scope, int] | None = None) -> None:
        """The scopes of the runs that have started, in their order."""
        for scope in scopes:
            if scope == self._last:
                self._count += 1
                if self._count > self._weight:
                    self._count = 1
            else:
                self._before, self._last, self._count = self._last or FIRST, scope, 1
            self._weight = (weights or {}).get(scope, 1)


class Shares:
    """While several scopes wait for a limit, each holds at most its share of it: limit ÷ waiting scopes, rounded up, by weight."""

    def __init__(
        self, limit: int, waiting: Collection[Scope], weights: Mapping[Scope, int], held: Mapping[Scope, int]
    ) -> None:
        total = sum(weights.get(scope, 1) for scope in waiting)
        self._shares = {scope: -(-limit * weights.get(scope, 1) // total) for scope in waiting}
        self._held = dict(held)

    def take(self, scope: Scope, weight: int) -> bool:
        """Whether a run of `scope` may take so much; it holds that then. A run that is heavier than what is left of the share may."""
        held = self._held.get(scope, 0)
        if held >= self._shares[scope]:
            return False
        self._held[scope] = held + weight
        return True


def _rounds(
    queues: dict[Scope, deque[T]], weights: Mapping[Scope, int], last: Scope | None, used: int
) -> list[tuple[Scope, T]]:
    """Each scope `weight` runs a round; the scope that was `last` has `used` some of its first round."""
    if len(queues) == 1:
        return [(scope, item) for scope, items in queues.items() for item in items]
    ordered: list[tuple[Scope, T]] = []
    first = True
    while queues:
        for scope in tuple(queues):
            share = weights.get(scope, 1)
            if first and scope == last and used < share:
                share -= used
            items = queues[scope]
            ordered += [(scope, items.popleft()) for _ in range(min(share, len(items)))]
            if not items:
                del queues[scope]
        first = False
    return ordered
