"""Machines that join with an invite, as coordinators answer them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A machine with its token, and its request for a certificate (PEM)."""

    token: str
    request: str
    machine: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What it needs beside its key. Certificates are PEM."""

    certificate: str
    authorities: str
    group: str
    trust_domain: str
    coordinators: Sequence[str]
    log_archivers: Sequence[str]
    ends_at: datetime


class Joining(Protocol):
    """Calls of coordinators."""

    def join(self, applicant: Applicant) -> Joined:
        """Raises TobanError."""
        ...
