"""A service's certificate files: read as a set, checked as a set, remembered when a later set is bad."""

import os
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock, SystemClock

CERTIFICATE, KEY, CA = "tls.crt", "tls.key", "ca.crt"
_NAMES = (CERTIFICATE, KEY, CA)
LOOK_SECONDS = 0.1
"""How old a look at the files may be: certificates are asked for with each call and each ticket."""

_log = get_logger(__name__)
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triple:
    """One consistent set: PEM texts for gRPC, parsed objects for tickets. The key belongs to the certificate."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    ca_pem: bytes
    certificate: x509.Certificate
    certificate_der: bytes
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    authorities: tuple[x509.Certificate, ...]


class TlsFiles:
    """The folder of tls.crt, tls.key and ca.crt. Safe to use from any thread (gRPC asks from its own).

    The first load raises CONFIG_INVALID when a file is missing or wrong. Later `current()` looks at the files again: a changed set that
    is good replaces the one held, a bad or half-written one is logged once and the last good one stays.
    """

    def __init__(self, directory: Path | str, *, clock: Clock | None = None) -> None:
        self.directory = Path(directory)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._complaint = ""
        self._stamp = self._look()
        self._triple = self._read()
        self._looked_at = self._clock.monotonic()

    def current(self) -> Triple:
        """The newest good set, at most LOOK_SECONDS late; the same object as long as nothing changed."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked_at < LOOK_SECONDS:
                return self._triple
            self._looked_at = now
            try:
                stamp = self._look()
                if stamp != self._stamp:
                    self._triple = self._read()
                    self._stamp, self._complaint = stamp, ""
                    _log.info("certificates loaded again", directory=str(self.directory))
            except TobanError as error:
                self._complain(error)
            return self._triple

    def _complain(self, error: TobanError) -> None:
        if error.message != self._complaint:
            self._complaint = error.message
            _log.error("certificates not loaded, the last good ones stay", error=error.message)

    def _look(self) -> Stamp:
        found = []
        for name in _NAMES:
            seen = _stat(self.directory / name)
            found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return tuple(found)

    def _read(self) -> Triple:
        if _stat(self.directory / KEY).st_mode & stat.S_IROTH:
            raise _invalid(self.directory / KEY, "can be read by everybody on this machine; chmod o-r")
        certificate_pem, key_pem, ca_pem = (_bytes(self.directory / name) for name in _NAMES)
        certificate = _certificates(self.directory / CERTIFICATE, certificate_pem)[0]
        key = _key(self.directory / KEY, key_pem)
        if certificate.public_key() != key.public_key():
            raise _invalid(self.directory / KEY, f"is not the key of {CERTIFICATE}; issue both again")
        return Triple(
            certificate_pem=certificate_pem,
            key_pem=key_pem,
            ca_pem=ca_pem,
            certificate=certificate,
            certificate_der=certificate.public_bytes(Encoding.DER),
            key=key,
            authorities=_certificates(self.directory / CA, ca_pem),
        )


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise _invalid(path, f"cannot be read ({error.strerror})") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _invalid(path, f"cannot be read ({error.strerror})") from None


def _certificates(path: Path, pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError:
        raise _invalid(path, "holds no PEM certificate") from None


def _key(path: Path, pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise _invalid(path, "holds no PEM private key without a passphrase") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _invalid(path, "is not an EC key; issue a P-256 one")
    return key


def _invalid(path: Path, problem: str) -> TobanError:
    return TobanError(ErrorCode.CONFIG_INVALID, f"{path}: {problem} (SCHEDULER_TLS_DIR names the folder)")
