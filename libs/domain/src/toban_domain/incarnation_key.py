"""The key of an executor's incarnation, as it travels in the metadata of calls to coordinators and log-archivers, and as it is stored."""

import hashlib

INCARNATION = "toban-incarnation"
KEY = "toban-incarnation-key"


def hash_key(key: str) -> bytes:
    """What is stored of a key or an instance secret, and what log tickets name. Both are 32 random bytes, so a plain digest is enough."""
    return hashlib.sha256(key.encode()).digest()


def key_metadata(incarnation: str, key: str) -> tuple[tuple[str, str], ...]:
    """What proves an incarnation in a call."""
    return ((INCARNATION, incarnation), (KEY, key))
