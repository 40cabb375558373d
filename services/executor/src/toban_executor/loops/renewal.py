"""Loop `renewal`: another key and certificate before the present certificate ends, where the machine has joined (docs/joining.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from toban_domain.errors import TobanError
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_transport.issue import keep, new_request
from toban_transport.tls import TlsFiles

CHECK_SECONDS = 600.0
# The last third of its life, as the development authority does.
PART_LEFT = 1 / 3
_log = get_logger(__name__)


class Gateway(Protocol):
    """Calls of coordinators."""

    async def renew_certificate(self, request: bytes) -> tuple[bytes, bytes]:
        """Certificate and authorities (PEM). Raises TobanError."""
        ...


class Renewal:
    """`run_once` for a Loop. The server and the clients of this process load the new files by themselves."""

    def __init__(self, *, directory: Path, tls: TlsFiles, gateway: Gateway, clock: Clock) -> None:
        self._directory = directory
        self._tls = tls
        self._gateway = gateway
        self._clock = clock

    async def run_once(self) -> None:
        """A failure is logged and tried again at the next turn: two thirds of the certificate's life are there for that."""
        present = self._tls.current().certificate
        whole = present.not_valid_after_utc - present.not_valid_before_utc
        if present.not_valid_after_utc - self._clock.wall() > whole * PART_LEFT:
            return
        key, request = new_request()
        try:
            certificate, authorities = await self._gateway.renew_certificate(request)
            keep(self._directory, key=key, certificate=certificate, authorities=authorities)
        except (TobanError, OSError) as error:
            ends_at = present.not_valid_after_utc.isoformat()
            _log.warning("the certificate could not be renewed", error=str(error), ends_at=ends_at)
            return
        _log.info("the certificate was renewed")
