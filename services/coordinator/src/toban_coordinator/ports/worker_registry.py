"""The mirror of members in Redis: written behind, never waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class MemberMirror(Protocol):
    """Takes worker hashes and writes them to Redis some time later, or never."""

    def put(self, worker_id: int, fields: Mapping[str, str]) -> None:
        """The newest fields of a worker; earlier ones that were not written yet are forgotten."""
        ...
