"""Signed epochs: good, forged, foreign; and good for ever."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toban_domain.epoch import EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.common_pb2 import SignedEpoch, SignedEpochBody
from toban_stack import certs
from toban_transport.coordinator_signature import LOG_TICKET, sign
from toban_transport.signed_epoch import EpochSigner, EpochVerifier
from toban_transport.tls import TlsFiles

PROOF = EpochProof(cluster_id="c", epoch=1 << 51, incarnation="i", grant_seq=7, signed_at=1_800_000_000)
COORDINATOR = ["spiffe://toban.internal/coordinator"]
LONG_AGO = datetime(2021, 1, 1, tzinfo=UTC)
DNS = ["coordinator.toban.internal"]


@pytest.fixture
def verifier(tls: Path) -> EpochVerifier:
    return EpochVerifier(TlsFiles(tls / "coordinator"), "toban.internal")


def refused(verifier: EpochVerifier, message: SignedEpoch) -> str:
    with pytest.raises(TobanError) as caught:
        verifier.verify(message)
    assert caught.value.code is ErrorCode.EPOCH_UNPROVEN
    return caught.value.message


def test_what_was_signed_comes_back(tls: Path, verifier: EpochVerifier) -> None:
    assert verifier.verify(EpochSigner(TlsFiles(tls / "coordinator")).sign(PROOF)) == PROOF


def test_a_changed_body_is_refused(tls: Path, verifier: EpochVerifier) -> None:
    message = EpochSigner(TlsFiles(tls / "coordinator")).sign(PROOF)
    body = SignedEpochBody.FromString(message.body)
    body.epoch += 1 << 51
    message.body = body.SerializeToString()
    assert "signature" in refused(verifier, message)


@pytest.mark.parametrize("service", ["executor", "log-archiver", "admin-web", "admin-cli", "external-worker"])
def test_only_a_coordinator_signs(tls: Path, verifier: EpochVerifier, service: str) -> None:
    assert "not by a coordinator" in refused(verifier, EpochSigner(TlsFiles(tls / service)).sign(PROOF))


def test_a_foreign_ca_is_refused(tmp_path: Path, verifier: EpochVerifier) -> None:
    foreign = certs.make_all(tmp_path / "foreign")
    assert "not of our CA" in refused(verifier, EpochSigner(TlsFiles(foreign / "coordinator")).sign(PROOF))


def test_the_end_of_the_signers_certificate_does_not_matter(forge: Any, verifier: EpochVerifier) -> None:
    """An executor that was away for years proves its epoch with what it has."""
    files = forge(COORDINATOR, DNS, valid=(LONG_AGO, LONG_AGO + timedelta(days=30)))
    assert verifier.verify(EpochSigner(files).sign(PROOF)) == PROOF


def test_a_log_ticket_is_no_signed_epoch(tls: Path, verifier: EpochVerifier) -> None:
    good = EpochSigner(TlsFiles(tls / "coordinator")).sign(PROOF)
    signature, certificate = sign(TlsFiles(tls / "coordinator"), LOG_TICKET, good.body)
    assert "signature" in refused(verifier, SignedEpoch(body=good.body, signature=signature, certificate=certificate))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=600), st.binary(max_size=100), st.binary(max_size=600))
def test_noise_is_refused_and_never_breaks(verifier: EpochVerifier, body: bytes, signature: bytes, der: bytes) -> None:
    refused(verifier, SignedEpoch(body=body, signature=signature, certificate=der))
