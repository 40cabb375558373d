"""Definitions by (id, version), kept in memory: a version never changes once it is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cachetools import LRUCache

from toban_coordinator.store.definitions import jobs
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec
from toban_observability.logs import get_logger
from toban_store.tx import Tx

KEPT = 10_000

Key = tuple[int, int]
_log = get_logger(__name__)


class DefinitionCache:
    """A bounded cache over the store; the least recently used version goes first."""

    def __init__(self, *, kept: int = KEPT) -> None:
        self._specs: LRUCache[Key, JobSpec] = LRUCache(kept)
        self._broken: LRUCache[Key, str] = LRUCache(kept)

    async def get(self, t: Tx, key: Key) -> JobSpec:
        """The spec of `key`; raises INTERNAL when it is missing or cannot be read, which the schema does not allow."""
        found = await self.find(t, [key])
        if key not in found:
            raise TobanError(ErrorCode.INTERNAL, self._broken[key])
        return found[key]

    async def find(self, t: Tx, keys: Iterable[Key]) -> dict[Key, JobSpec]:
        """The specs of `keys`; one that is missing or cannot be read is left out and logged once, so that it stops no other."""
        wanted = set(keys)
        found = {key: spec for key in wanted if (spec := self._specs.get(key)) is not None}
        missing = [key for key in wanted if key not in found and key not in self._broken]
        if missing:
            found |= await self._load(t, missing)
        return found

    def known(self, key: Key) -> JobSpec | None:
        """The spec of `key` when it is in memory."""
        return self._specs.get(key)

    def broken(self, key: Key) -> str:
        """Why the spec of `key` cannot be had; "" when it can, or was never looked up."""
        return self._broken.get(key, "")

    async def _load(self, t: Tx, keys: Sequence[Key]) -> dict[Key, JobSpec]:
        found: dict[Key, JobSpec] = {}
        stored = await jobs.versions(t, keys)
        for key in keys:
            spec = stored.get(key, "there is no such version")
            if isinstance(spec, JobSpec):
                self._specs[key] = found[key] = spec
                continue
            self._broken[key] = f"definition {key[0]}, version {key[1]}: {spec}"
            _log.error(
                "a definition cannot be read: its runs are left out",
                reason="definition_unreadable",
                definition_id=key[0],
                version=key[1],
                error=spec,
            )
        return found
