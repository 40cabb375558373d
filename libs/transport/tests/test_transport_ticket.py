"""Log tickets: good, forged, foreign, expired."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.common_pb2 import LogTicket, LogTicketBody
from toban_stack import certs
from toban_transport.coordinator_signature import BARE, LOG_TICKET, SIGNED_EPOCH, sign
from toban_transport.log_ticket import TicketHolder, TicketSigner, TicketVerifier, check_holder
from toban_transport.tls import TlsFiles

NOW = datetime(2027, 1, 1, tzinfo=UTC)
COORDINATOR = ["spiffe://toban.internal/coordinator"]
DNS = ["coordinator.toban.internal"]


def signed(files: TlsFiles) -> LogTicket:
    return TicketSigner(files).sign(run_id=7, token=2**62, incarnation="i1", log_day=date(2027, 1, 1))


@pytest.fixture
def verifier(tls: Path) -> TicketVerifier:
    """As a log-archiver has it."""
    return TicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal")


def refused(verifier: TicketVerifier, ticket: LogTicket, now: datetime = NOW) -> str:
    with pytest.raises(TobanError) as caught:
        verifier.verify(ticket, now=now)
    assert caught.value.code is ErrorCode.TICKET_INVALID
    return caught.value.message


def test_a_good_ticket_says_what_was_signed(tls: Path, verifier: TicketVerifier) -> None:
    ticket = signed(TlsFiles(tls / "coordinator"))
    wanted = LogTicketBody(run_id=7, token=2**62, incarnation="i1", log_day="2027-01-01")
    assert verifier.verify(ticket, now=NOW) == wanted
    assert verifier.verify(ticket, now=NOW) is verifier.verify(ticket, now=NOW)


def test_a_changed_body_signature_or_certificate_is_refused(tls: Path, verifier: TicketVerifier) -> None:
    good = signed(TlsFiles(tls / "coordinator"))
    verifier.verify(good, now=NOW)
    other = LogTicketBody(run_id=8, token=2**62, incarnation="i1", log_day="2027-01-01").SerializeToString()
    assert "signature" in refused(
        verifier, LogTicket(body=other, signature=good.signature, certificate=good.certificate)
    )
    assert "signature" in refused(verifier, LogTicket(body=good.body, signature=b"", certificate=good.certificate))
    executor = signed(TlsFiles(tls / "executor"))
    mixed = LogTicket(body=good.body, signature=executor.signature, certificate=good.certificate)
    assert "signature" in refused(verifier, mixed)


@pytest.mark.parametrize("service", ["executor", "log-archiver", "admin-web", "admin-cli", "external-worker"])
def test_only_a_coordinator_signs(tls: Path, verifier: TicketVerifier, service: str) -> None:
    assert "not by a coordinator" in refused(verifier, signed(TlsFiles(tls / service)))


def test_a_foreign_ca_is_refused(tmp_path: Path, verifier: TicketVerifier) -> None:
    foreign = certs.make_all(tmp_path / "foreign")
    assert "not of our CA" in refused(verifier, signed(TlsFiles(foreign / "coordinator")))


def test_a_leaf_that_claims_our_cas_name_is_refused(forge: Any, verifier: TicketVerifier) -> None:
    assert "not of our CA" in refused(verifier, signed(forge(COORDINATOR, DNS, own_ca=True)))


@pytest.mark.parametrize(
    "uris",
    [[], [*COORDINATOR, *COORDINATOR], ["spiffe://elsewhere/coordinator"], ["https://toban.internal/coordinator"]],
)
def test_names_that_are_no_coordinator_are_refused(forge: Any, verifier: TicketVerifier, uris: list[str]) -> None:
    assert "signer is unknown" in refused(verifier, signed(forge(uris, DNS)))


def test_a_clock_that_is_a_few_minutes_behind_accepts_a_fresh_certificate(forge: Any, verifier: TicketVerifier) -> None:
    ticket = signed(forge(COORDINATOR, DNS, valid=(NOW, NOW + timedelta(days=1))))
    verifier.verify(ticket, now=NOW - timedelta(minutes=9))
    assert "not valid at this time" in refused(verifier, ticket, NOW - timedelta(minutes=11))


def test_an_expired_or_early_certificate_is_refused_also_when_remembered(
    forge: Any, tls: Path, verifier: TicketVerifier
) -> None:
    ticket = signed(forge(COORDINATOR, DNS, valid=(NOW - timedelta(days=1), NOW + timedelta(days=1))))
    verifier.verify(ticket, now=NOW)
    assert "not valid at this time" in refused(verifier, ticket, NOW + timedelta(days=2))
    assert "not valid at this time" in refused(verifier, ticket, NOW - timedelta(days=2))
    lenient = TicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal", leeway=timedelta(days=7))
    assert lenient.verify(ticket, now=NOW + timedelta(days=7)).run_id == 7
    assert "not valid" in refused(lenient, ticket, NOW + timedelta(days=9))


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff",
        b"",
        LogTicketBody(run_id=1, token=1, incarnation="i", log_day="yesterday").SerializeToString(),
        LogTicketBody(run_id=0, token=1, incarnation="i", log_day="2027-01-01").SerializeToString(),
        LogTicketBody(run_id=1, token=1, log_day="2027-01-01").SerializeToString(),
    ],
)
def test_a_body_that_says_nothing_is_refused_though_signed(tls: Path, verifier: TicketVerifier, body: bytes) -> None:
    files = TlsFiles(tls / "coordinator")
    signature, certificate = sign(files, LOG_TICKET, body)
    assert "body" in refused(verifier, LogTicket(body=body, signature=signature, certificate=certificate))


def bare(files: TlsFiles, body: bytes) -> LogTicket:
    """As the release before signed, and as a TLS 1.2 handshake signs."""
    signature, certificate = sign(files, BARE, body)
    return LogTicket(body=body, signature=signature, certificate=certificate)


def test_a_ticket_of_the_last_release_counts_for_runs_that_were_sent_before_the_upgrade(
    tls: Path, verifier: TicketVerifier
) -> None:
    body = LogTicketBody(run_id=2**62, token=2**62, incarnation=str(UUID(int=7)), log_day="2027-01-01")
    assert verifier.verify(bare(TlsFiles(tls / "coordinator"), body.SerializeToString()), now=NOW) == body


def test_no_handshake_is_a_ticket_of_the_last_release(tls: Path, verifier: TicketVerifier) -> None:
    """What TLS 1.2 signs has 100 bytes and more: the client's random, the server's, and a public key."""
    body = LogTicketBody(run_id=7, token=2**62, incarnation=str(UUID(int=7)), log_day="2027-01-01").SerializeToString()
    unknown_field = b"\x7a" + bytes([100 - len(body) - 2]) + bytes(100 - len(body) - 2)
    assert LogTicketBody.FromString(body + unknown_field).run_id == 7
    for handshake in (body + unknown_field, unknown_field + body, body + b"\x7a\x01x"):
        assert "signature" in refused(verifier, bare(TlsFiles(tls / "coordinator"), handshake))


@pytest.mark.parametrize(
    "prefix", [b"", b" " * 64 + SIGNED_EPOCH.encode() + b"\0", b" " * 64 + b"TLS 1.3, server CertificateVerify\0"]
)
def test_what_the_key_signs_elsewhere_is_no_ticket(tls: Path, verifier: TicketVerifier, prefix: bytes) -> None:
    """A TLS 1.2 handshake signs bytes of the peer's choice with the same key; an epoch is another statement."""
    files = TlsFiles(tls / "coordinator")
    ticket = signed(files)
    verifier.verify(ticket, now=NOW)
    ticket.signature = files.current().key.sign(prefix + ticket.body, ec.ECDSA(SHA256()))
    assert "signature" in refused(verifier, ticket)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=600), st.binary(max_size=100), st.binary(max_size=600))
def test_noise_is_refused_and_never_breaks(verifier: TicketVerifier, body: bytes, signature: bytes, der: bytes) -> None:
    refused(verifier, LogTicket(body=body, signature=signature, certificate=der))


HOLDER = TicketHolder(key_hash=b"k" * 32, instance_hash=b"i" * 32, group="pci")


@pytest.mark.parametrize(
    ("presented", "why"),
    [
        (TicketHolder(key_hash=b"k" * 32, group="pci"), ""),
        (TicketHolder(group="pci"), "key is not proven"),
        (TicketHolder(key_hash=b"x" * 32, group="pci"), "key is not proven"),
        (TicketHolder(key_hash=b"k" * 32, group="default"), "for executor group 'pci'"),
    ],
)
def test_a_ticket_is_good_for_the_key_and_the_group_that_it_names(tls: Path, presented: TicketHolder, why: str) -> None:
    signer = TicketSigner(TlsFiles(tls / "coordinator"))
    ticket = signer.sign(run_id=7, token=2**62, incarnation="i1", log_day="2027-01-01", holder=HOLDER)
    body = TicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal").verify(ticket, now=NOW)
    if not why:
        check_holder(body, presented)
        return
    with pytest.raises(TobanError, match=why) as caught:
        check_holder(body, presented)
    assert caught.value.code is ErrorCode.TICKET_INVALID


def test_a_ticket_without_a_key_is_good_for_any_executor(tls: Path) -> None:
    """Executors of the release before do not prove their keys."""
    ticket = TicketSigner(TlsFiles(tls / "coordinator")).sign(
        run_id=7, token=2**62, incarnation="i1", log_day="2027-01-01"
    )
    body = TicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal").verify(ticket, now=NOW)
    check_holder(body, TicketHolder(group="pci"))
