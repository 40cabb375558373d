"""Definitions by (id, version), kept in memory: a version never changes once it is written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_store.scheduler import jobs
from toban_store.tx import Tx

KEPT = 10_000

Key = tuple[int, int]


class Definitions:
    """A bounded cache over the store; the least recently used version goes first."""

    def __init__(self, *, kept: int = KEPT) -> None:
        self._kept = kept
        self._specs: OrderedDict[Key, JobSpec] = OrderedDict()

    async def get(self, t: Tx, keys: Iterable[Key]) -> dict[Key, JobSpec]:
        """The specs of `keys`; raises INTERNAL when one is missing, which the schema does not allow."""
        wanted = set(keys)
        missing = [key for key in wanted if key not in self._specs]
        if missing:
            self._specs.update(await jobs.versions(t, missing))
        found: dict[Key, JobSpec] = {}
        for key in wanted:
            spec = self._specs.get(key)
            if spec is None:
                raise TobanError(ErrorCode.INTERNAL, f"definition {key[0]} has no version {key[1]}")
            self._specs.move_to_end(key)
            found[key] = spec
        while len(self._specs) > self._kept:
            self._specs.popitem(last=False)
        return found

    def known(self, key: Key) -> JobSpec | None:
        """The spec of `key` when it is in memory."""
        return self._specs.get(key)
