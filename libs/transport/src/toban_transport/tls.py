"""A service's certificate files, and its deny-list: read as a set, checked as a set, remembered when a later set is bad."""

import os
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from toban_domain.deny_list import DENIED, parse_denied
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import Clock, SystemClock
from toban_transport.certificate_chain import trusted

CERTIFICATE, KEY, CA = "tls.crt", "tls.key", "ca.crt"
_NAMES = (CERTIFICATE, KEY, CA)
LOOK_SECONDS = 0.1
"""How old a look at the files may be: certificates are asked for with each call and each ticket."""

HALF_DONE_SECONDS = 1.0
"""How long files that do not belong together are taken for a change under way, before anybody is told."""

_READS = 3

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

    authority: x509.Certificate
    """The one that issued this certificate; when none did (an intermediate that is not in tls.crt), the one that ends first."""

    denied: frozenset[int] = frozenset()
    """Serial numbers of the deny-list."""


class _MixedError(TobanError):
    """Key and certificate are of different sets, as when one was replaced and the other not yet."""


class TlsFiles:
    """The folder of tls.crt, tls.key and ca.crt, and where there is one, `denied`. Safe to use from any thread (gRPC asks from its own).

    The first load raises CONFIG_INVALID when a file is missing or wrong, or the certificate has expired. Later `current()` looks at the
    files again: a changed set that is good replaces the one held. While it is bad, half-written, expired or not valid yet, the last good one
    stays; when that lasts, `problem` says why (one line), the log says it once, and `failures` counts it.
    """

    def __init__(self, directory: Path | str, *, clock: Clock | None = None) -> None:
        self.directory = Path(directory)
        self._clock = clock or SystemClock()
        self.problem = ""
        self.failures = 0
        self._lock = threading.Lock()
        self._troubled_since: float | None = None
        self._stamp, self._triple = self._first()
        self._looked_at = self._clock.monotonic()

    def current(self) -> Triple:
        """The newest good set, at most LOOK_SECONDS late; the same object as long as nothing changed."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked_at < LOOK_SECONDS:
                return self._triple
            self._looked_at = now
            try:
                if self._look() != self._stamp:
                    self._take(*self._load())
                self._troubled_since, self.problem = None, ""
            except TobanError as error:
                self._complain(error, now)
            return self._triple

    def _first(self) -> tuple[Stamp, Triple]:
        """The set to begin with; files that are being exchanged at this moment are waited for."""
        pause = threading.Event()
        for _ in range(int(HALF_DONE_SECONDS / LOOK_SECONDS)):
            try:
                return self._load()
            except _MixedError:
                pause.wait(LOOK_SECONDS)
        return self._load()

    def _take(self, stamp: Stamp, triple: Triple) -> None:
        if triple.certificate.not_valid_before_utc > self._clock.wall():
            start = triple.certificate.not_valid_before_utc.isoformat()
            raise _invalid(self.directory / CERTIFICATE, f"is not valid before {start}; look at the clocks")
        self._stamp, self._triple = stamp, triple
        _logger().info(
            "certificates loaded again",
            directory=str(self.directory),
            serial=f"{triple.certificate.serial_number:x}",
            not_after=triple.certificate.not_valid_after_utc.isoformat(),
        )

    def _complain(self, error: TobanError, now: float) -> None:
        if self._troubled_since is None:
            self._troubled_since = now
        if now - self._troubled_since >= HALF_DONE_SECONDS and error.message != self.problem:
            self.problem = error.message
            self.failures += 1
            _logger().error("certificates not loaded, the last good ones stay", error=error.message)

    def _load(self) -> tuple[Stamp, Triple]:
        """A set whose files did not change while they were read, if they come to rest at all."""
        for _ in range(_READS - 1):
            stamp = self._look()
            try:
                triple = self._read()
            except TobanError:
                if self._look() == stamp:
                    raise
                continue
            if self._look() == stamp:
                return stamp, triple
        return self._look(), self._read()

    def _look(self) -> Stamp:
        found = []
        for name in _NAMES:
            seen = _stat(self.directory / name)
            found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        if (self.directory / DENIED).exists():
            seen = _stat(self.directory / DENIED)
            found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return tuple(found)

    def _read(self) -> Triple:
        if _stat(self.directory / KEY).st_mode & stat.S_IROTH:
            raise _invalid(self.directory / KEY, "can be read by everybody on this machine; chmod o-r")
        certificate_pem, key_pem, ca_pem = (_bytes(self.directory / name) for name in _NAMES)
        chain = _certificates(self.directory / CERTIFICATE, certificate_pem)
        certificate = chain[0]
        authorities = _certificates(self.directory / CA, ca_pem)
        key = _key(self.directory / KEY, key_pem)
        if certificate.public_key() != key.public_key():
            error = _invalid(self.directory / KEY, f"is not the key of {CERTIFICATE}; issue both again")
            raise _MixedError(error.code, error.message)
        if certificate.not_valid_after_utc <= self._clock.wall():
            end = certificate.not_valid_after_utc.isoformat()
            raise _invalid(self.directory / CERTIFICATE, f"expired at {end}; issue it again")
        return Triple(
            certificate_pem=certificate_pem,
            key_pem=key_pem,
            ca_pem=ca_pem,
            certificate=certificate,
            certificate_der=certificate.public_bytes(Encoding.DER),
            key=key,
            authorities=authorities,
            authority=_authority(chain, authorities),
            denied=_denied(self.directory / DENIED),
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


def _authority(chain: tuple[x509.Certificate, ...], authorities: tuple[x509.Certificate, ...]) -> x509.Certificate:
    # One that was renewed with the same key is there twice: the later one counts, as it does for a check of the signature.
    issuers = [item for item in authorities if trusted(chain[0], by=item, between=chain[1:])]
    if issuers:
        return max(issuers, key=lambda item: item.not_valid_after_utc)
    return min(authorities, key=lambda item: item.not_valid_after_utc)


def _denied(path: Path) -> frozenset[int]:
    if not path.exists():
        return frozenset()
    try:
        return parse_denied(_bytes(path).decode("utf-8", "replace"))
    except ValueError as error:
        raise _invalid(path, str(error)) from None


def _key(path: Path, pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise _invalid(path, "holds no PEM private key without a passphrase") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _invalid(path, "is not an EC key; issue a P-256 one")
    return key


def _invalid(path: Path, problem: str) -> TobanError:
    return TobanError(
        ErrorCode.CONFIG_INVALID,
        f"{path}: {problem} (SCHEDULER_TLS_DIR names the folder, TOBAN_TLS_DIR that of a command)",
    )


def _logger() -> Any:
    # Loaded when there is something to say: the command line reads certificates too, and starts in half the time without it.
    from toban_observability.logs import get_logger

    return get_logger(__name__)
