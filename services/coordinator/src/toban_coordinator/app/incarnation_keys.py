"""Incarnation keys: what an executor proves itself with after Register (docs/architecture.md)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from uuid import UUID

from cachetools import LRUCache

from toban_coordinator.store import executors
from toban_domain.epoch import EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool

INCARNATION = "toban-incarnation"
KEY = "toban-incarnation-key"
_CACHE_SIZE = 10_000


def hash_key(key: str) -> bytes:
    """What is stored. The key is 32 random bytes, so a plain digest is enough."""
    return hashlib.sha256(key.encode()).digest()


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
    """Checks keys; a hash never changes, so each is read once. `coordinator` is the incarnation of the process that checks, `sign` signs in its
    name."""

    def __init__(self, *, pool: Pool, coordinator: str, sign: Callable[[EpochProof], bytes]) -> None:
        self._pool = pool
        self._coordinator = coordinator
        self._sign = sign
        self._hashes: LRUCache[str, bytes] = LRUCache(_CACHE_SIZE)

    async def verified(self, metadata: Mapping[str, str], claimed: str) -> str:
        """The caller's incarnation, proven by its key and equal to the one that the request claims.

        Raises TobanError UNAUTHENTICATED for a missing or wrong key, INCARNATION_UNKNOWN for one that was never registered here.
        """
        incarnation = valid_incarnation(metadata.get(INCARNATION, ""))
        if valid_incarnation(claimed) != incarnation:
            raise TobanError(ErrorCode.WRONG_INCARNATION, "the request names another incarnation than its metadata")
        stored = await self._stored(incarnation)
        if not hmac.compare_digest(stored, hash_key(metadata.get(KEY, ""))):
            raise TobanError(ErrorCode.UNAUTHENTICATED, f"the key of incarnation {incarnation} is wrong")
        return incarnation

    async def _stored(self, incarnation: str) -> bytes:
        if (kept := self._hashes.get(incarnation)) is not None:
            return kept
        found = await executors.key_hash(self._pool, incarnation)
        if isinstance(found, EpochProof):
            # The executor compares it with what it has seen: this PostgreSQL may be a former primary.
            signed = b64encode(self._sign(found)).decode()
            raise TobanError(
                ErrorCode.INCARNATION_UNKNOWN,
                f"incarnation {incarnation} is not registered; register a new one",
                detail={"coordinator": self._coordinator, "signed_epoch": signed},
            )
        self._hashes[incarnation] = found
        return found
