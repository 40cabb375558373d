"""Definitions by (id, version), kept in memory: a version never changes once it is written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from toban_coordinator.store import jobs
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_observability.logs import get_logger
from toban_store.tx import Tx

KEPT = 10_000

Key = tuple[int, int]
_log = get_logger(__name__)


class Definitions:
    """A bounded cache over the store; the least recently used version goes first."""

    def __init__(self, *, kept: int = KEPT) -> None:
        self._kept = kept
        self._specs: OrderedDict[Key, JobSpec] = OrderedDict()
        self._broken: OrderedDict[Key, str] = OrderedDict()

    async def get(self, t: Tx, key: Key) -> JobSpec:
        """The spec of `key`; raises INTERNAL when it is missing or cannot be read, which the schema does not allow."""
        found = await self.find(t, [key])
        if key not in found:
            raise TobanError(ErrorCode.INTERNAL, self._broken[key])
        return found[key]

    async def find(self, t: Tx, keys: Iterable[Key]) -> dict[Key, JobSpec]:
        """The specs of `keys`; one that is missing or cannot be read is left out and logged once, so that it stops nobody else."""
        wanted = set(keys)
        missing = [key for key in wanted if key not in self._specs and key not in self._broken]
        if missing:
            await self._load(t, missing)
        found: dict[Key, JobSpec] = {}
        for key in wanted:
            spec = self._specs.get(key)
            if spec is not None:
                self._specs.move_to_end(key)
                found[key] = spec
        for cache in (self._specs, self._broken):
            while len(cache) > self._kept:
                cache.popitem(last=False)
        return found

    def known(self, key: Key) -> JobSpec | None:
        """The spec of `key` when it is in memory."""
        return self._specs.get(key)

    def broken(self, key: Key) -> str:
        """Why the spec of `key` cannot be had; "" when it can, or nobody has asked."""
        return self._broken.get(key, "")

    async def _load(self, t: Tx, keys: list[Key]) -> None:
        stored = await jobs.versions(t, keys)
        for key in keys:
            spec = stored.get(key, "there is no such version")
            if isinstance(spec, JobSpec):
                self._specs[key] = spec
                continue
            self._broken[key] = f"definition {key[0]}, version {key[1]}: {spec}"
            _log.error(
                "a definition cannot be read: its runs are left out",
                reason="definition_unreadable",
                definition_id=key[0],
                version=key[1],
                error=spec,
            )
