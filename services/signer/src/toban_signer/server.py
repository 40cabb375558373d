"""The signer over gRPC. The caller is a coordinator, by its certificate; it has checked an invite, or is the executor's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_proto.v1 import joining_pb2 as pb
from toban_proto.v1.joining_pb2_grpc import SignerServicer
from toban_proto.v1.joining_pb2_grpc import add_SignerServicer_to_server as add_to_server
from toban_runtime.clock import Clock
from toban_signer.decide import certificate
from toban_transport.convert import timestamp_to_pb

__all__ = ["Authority", "SignerService", "add_to_server", "read_authority"]
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Certificate and key of the authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def read_authority(directory: Path) -> Authority:
    """ca.crt and ca.key. Raises CONFIG_INVALID for files that are not there, do not belong together, or that others can read."""
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    try:
        found = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        mode = key_file.stat().st_mode
    except (OSError, ValueError, TypeError) as error:
        raise _wrong(f"{directory} has no authority ({error}); it needs ca.crt and ca.key") from None
    if mode & 0o077:
        raise _wrong(f"{key_file} can be read by others (mode {mode & 0o777:04o}); run chmod 600")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != found.public_key():
        raise _wrong(f"{key_file} is not the EC key of {certificate_file}")
    return Authority(certificate=found, key=key)


class SignerService(SignerServicer):
    """Reads the authority at each call: it may be replaced while the process serves."""

    def __init__(
        self, *, authority: Callable[[], Authority], trust_domain: str, validity: timedelta, clock: Clock
    ) -> None:
        self._authority = authority
        self._trust_domain = trust_domain
        self._validity = validity
        self._clock = clock

    async def Sign(self, request: pb.SignRequest, _context: Any) -> pb.SignedCertificate:
        """Raises INVALID_ARGUMENT, PERMISSION_DENIED, CONFIG_INVALID."""
        authority, now = self._authority(), self._clock.wall()
        made = certificate(
            request.request_pem, request.name, authority.certificate, self._trust_domain, now, self._validity
        ).sign(authority.key, hashes.SHA256())
        _log.info(
            "a certificate was signed",
            name=request.name,
            serial=f"{made.serial_number:x}",
            ends_at=made.not_valid_after_utc.isoformat(),
        )
        return pb.SignedCertificate(
            certificate_pem=made.public_bytes(serialization.Encoding.PEM),
            ends_at=timestamp_to_pb(made.not_valid_after_utc),
        )


def _wrong(message: str) -> TobanError:
    return TobanError(ErrorCode.CONFIG_INVALID, message)
