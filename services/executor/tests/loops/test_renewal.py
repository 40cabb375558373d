"""The certificate of an executor that has joined is renewed in its last third; a failure changes nothing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.loops.renewal import Renewal
from toban_runtime.clock import SystemClock
from toban_signer.decide import certificate
from toban_signer.server import read_authority
from toban_stack import certs
from toban_testing.clock import FakeClock
from toban_transport.tls import TlsFiles

DAYS = 30


class Gateway:
    """Signs as the signer behind coordinators does."""

    def __init__(self, tls: Path, clock: FakeClock) -> None:
        self._authority = read_authority(tls / "ca")
        self._clock = clock
        self._tls = tls
        self.error: TobanError | None = None
        self.asked = 0

    async def renew_certificate(self, request: bytes) -> tuple[bytes, bytes]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        builder = certificate(
            request,
            "executor/pci",
            self._authority.certificate,
            certs.TRUST_DOMAIN,
            self._clock.wall(),
            timedelta(days=DAYS),
        )
        made = builder.sign(self._authority.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM), b"".join(
            (self._tls / ca / "ca.crt").read_bytes() for ca in ("ca", "next-ca") if (self._tls / ca).exists()
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=SystemClock().wall())


@pytest.fixture
def tls(tmp_path: Path, clock: FakeClock) -> Path:
    # Issued for so long that the real clock of TlsFiles finds it good in the last third as well.
    certs.make_ca(tmp_path / "ca", now=clock.wall())
    return certs.issue(tmp_path / "ca", "executor/pci", tmp_path / "executor-pci", now=clock.wall()).parent


async def test_it_is_renewed_in_its_last_third_with_another_key(tls: Path, clock: FakeClock) -> None:
    folder = tls / "executor-pci"
    gateway, files = Gateway(tls, clock), TlsFiles(folder, clock=clock)
    renewal = Renewal(directory=folder, tls=files, gateway=gateway, clock=clock)
    first = files.current()
    await clock.advance(timedelta(days=DAYS * 2 / 3).total_seconds() - 7200)
    await renewal.run_once()
    assert gateway.asked == 0, "two thirds are not over"
    await clock.advance(7200)
    gateway.error = TobanError(ErrorCode.UNAVAILABLE, "the signer is away")
    await renewal.run_once()
    assert (gateway.asked, files.current().certificate) == (1, first.certificate)
    gateway.error = None
    certs.make_ca(tls / "next-ca", now=clock.wall())
    await renewal.run_once()
    await clock.advance(60)
    second = files.current()
    assert second.certificate.not_valid_after_utc > first.certificate.not_valid_after_utc
    assert second.key.public_key() != first.key.public_key()
    assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
    both = first.ca_pem + (tls / "next-ca" / "ca.crt").read_bytes()
    assert (folder / "ca.crt").read_bytes() == both, "an authority that will sign is trusted before it does"
    await renewal.run_once()
    assert gateway.asked == 2, "nothing to do"
