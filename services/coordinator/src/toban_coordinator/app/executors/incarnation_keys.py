"""Incarnation keys: what an executor proves itself with after Register (docs/architecture.md)."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from uuid import UUID

from cachetools import LRUCache

from toban_coordinator.ports.orders import ExecutorFacts
from toban_coordinator.store.executors import executors
from toban_domain.epoch import EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.incarnation_key import INCARNATION, KEY, hash_key
from toban_store.pool import Pool

_CACHE_SIZE = 10_000


def secret_hash(secret: str) -> bytes | None:
    """What is stored of an instance's secret, which is random too; None without one."""
    return hash_key(secret) if secret else None


def valid_incarnation(text: str) -> str:
    """The canonical form of an incarnation. Raises TobanError INVALID_ARGUMENT when it is not a UUID."""
    try:
        return str(UUID(text))
    except ValueError:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"incarnation {text[:64]!r} is not a UUID") from None


class IncarnationKeys:
    """Checks keys and groups; neither ever changes for an incarnation, so each row is read once. `coordinator` is the incarnation of the process
    that checks, `sign` signs in its name."""

    def __init__(self, *, pool: Pool, coordinator: str, sign: Callable[[EpochProof], bytes]) -> None:
        self._pool = pool
        self._coordinator = coordinator
        self._sign = sign
        self._known: LRUCache[str, ExecutorFacts] = LRUCache(_CACHE_SIZE)

    async def verified(self, metadata: Mapping[str, str], claimed: str, *, group: str) -> ExecutorFacts:
        """The caller's incarnation, proven by its key and equal to the one that the request claims; `group` is that of the caller's certificate.

        Raises TobanError UNAUTHENTICATED for a missing or wrong key, INCARNATION_UNKNOWN for one that was never registered here, and
        PERMISSION_DENIED for an incarnation of another group.
        """
        incarnation = valid_incarnation(metadata.get(INCARNATION, ""))
        if valid_incarnation(claimed) != incarnation:
            raise TobanError(ErrorCode.WRONG_INCARNATION, "the request names another incarnation than its metadata")
        stored = await self._stored(incarnation)
        if not hmac.compare_digest(stored.key_hash, hash_key(metadata.get(KEY, ""))):
            raise TobanError(ErrorCode.UNAUTHENTICATED, f"the key of incarnation {incarnation} is wrong")
        if stored.group != group:
            raise TobanError(
                ErrorCode.PERMISSION_DENIED,
                f"incarnation {incarnation} is of executor group {stored.group!r}, and the caller's certificate is of group {group!r}; "
                "an executor with another certificate registers again after a restart",
            )
        return stored

    async def _stored(self, incarnation: str) -> ExecutorFacts:
        if (kept := self._known.get(incarnation)) is not None:
            return kept
        found = await executors.facts(self._pool, incarnation)
        if isinstance(found, EpochProof):
            # The executor compares it with what it has seen: this PostgreSQL may be a former primary.
            signed = b64encode(self._sign(found)).decode()
            raise TobanError(
                ErrorCode.INCARNATION_UNKNOWN,
                f"incarnation {incarnation} is not registered; register a new one",
                detail={"coordinator": self._coordinator, "signed_epoch": signed},
            )
        self._known[incarnation] = found
        return found


class KnownExecutors:
    """`ExecutorDirectory` over PostgreSQL; each incarnation is read once."""

    def __init__(self, *, pool: Pool) -> None:
        self._pool = pool
        self._known: LRUCache[str, ExecutorFacts] = LRUCache(_CACHE_SIZE)

    async def find(self, incarnation: str) -> ExecutorFacts:
        """Its group and what it proves itself with. Raises UNAVAILABLE when there is no such incarnation, StoreError."""
        if (kept := self._known.get(incarnation)) is not None:
            return kept
        found = await executors.facts(self._pool, incarnation)
        if isinstance(found, EpochProof):
            raise TobanError(ErrorCode.UNAVAILABLE, f"incarnation {incarnation} is not registered; it gets no orders")
        self._known[incarnation] = found
        return found
