"""The process that signs certificates of executors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A certificate (PEM), its serial number as deny-lists have it, and its end."""

    certificate: bytes
    serial: str
    ends_at: datetime


class Signing(Protocol):
    """Calls of the signer."""

    async def sign(self, request: bytes, *, group: str) -> Signed:
        """A certificate of an executor of this group, for the key of the request (PKCS #10, PEM).

        Raises INVALID_ARGUMENT for a request that is none, UNIMPLEMENTED where no signer is configured, and what calls raise.
        """
        ...
