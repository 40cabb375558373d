"""What encrypts secrets, and what gives their values to orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from toban_coordinator.decide.cluster.diagnose.secret_keys import KeyFile
from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile, SecretRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """An encrypted value; `key_id` says with which key."""

    key_id: str
    nonce: bytes
    ciphertext: bytes


class SecretKeys(Protocol):
    """The key file. The first key encrypts, all of them decrypt; a changed file counts from the next call on."""

    def status(self) -> KeyFile:
        """What the file has. Raises nothing."""
        ...

    def seal(self, name: str, value: bytes) -> Sealed:
        """The value encrypted, bound to the name. Raises SECRETS_KEY_MISSING."""
        ...

    def open(self, name: str, sealed: Sealed) -> bytes:
        """The value. Raises SECRETS_KEY_MISSING when its key is not in the file, or the row was changed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretUse:
    """The secrets that an order of a job needs."""

    key: AttemptKey
    job: str
    secrets: Sequence[SecretRef]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretValues:
    """The values of one order, or the problem that leaves it without."""

    files: Sequence[SecretFile] = field(default=(), repr=False)
    problem: str = ""


class SecretSource(Protocol):
    """Gives values to orders at the moment when they are sent."""

    async def values(self, uses: Sequence[SecretUse]) -> Mapping[AttemptKey, SecretValues]:
        """The values for each use. Raises StoreError when PostgreSQL does not answer."""
        ...
