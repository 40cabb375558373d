"""Read tickets: good, forged, foreign, expired, for other runs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.common_pb2 import LogTicketBody, ReadTicket, ReadTicketBody
from toban_stack import certs
from toban_transport.coordinator_signature import LOG_TICKET, READ_TICKET, SIGNED_EPOCH, sign
from toban_transport.log_ticket import TicketSigner, TicketVerifier
from toban_transport.read_ticket import LEEWAY, LIFETIME, MAX_RUNS, ReadTicketSigner, ReadTicketVerifier
from toban_transport.tls import TlsFiles

NOW = datetime(2027, 1, 1, tzinfo=UTC)
COORDINATOR = ["spiffe://toban.internal/coordinator"]
DNS = ["coordinator.toban.internal"]
SECOND = timedelta(seconds=1)


def signed(files: TlsFiles, *run_ids: int) -> ReadTicket:
    return ReadTicketSigner(files).sign(actor="user ada", run_ids=run_ids or (7, 8), now=NOW)


@pytest.fixture
def verifier(tls: Path) -> ReadTicketVerifier:
    """As a log-archiver has it."""
    return ReadTicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal")


def refused(
    verifier: ReadTicketVerifier,
    ticket: ReadTicket,
    now: datetime = NOW,
    *,
    code: ErrorCode = ErrorCode.TICKET_INVALID,
    run: int = 7,
) -> str:
    with pytest.raises(TobanError) as caught:
        verifier.verify(ticket, run_ids=[run], now=now)
    assert caught.value.code is code
    return caught.value.message


def test_a_good_ticket_is_for_its_runs_and_for_a_minute(tls: Path, verifier: ReadTicketVerifier) -> None:
    ticket = signed(TlsFiles(tls / "coordinator"))
    for now in (NOW - LEEWAY, NOW, NOW + LIFETIME + LEEWAY):
        for runs in ([7], [8, 7], []):
            assert verifier.verify(ticket, run_ids=runs, now=now).actor == "user ada"


def test_of_another_run_it_is_none(tls: Path, verifier: ReadTicketVerifier) -> None:
    ticket = signed(TlsFiles(tls / "coordinator"))
    with pytest.raises(TobanError, match="user ada is not for run 9") as caught:
        verifier.verify(ticket, run_ids=[7, 9, 10], now=NOW)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


def test_it_ends(tls: Path, verifier: ReadTicketVerifier) -> None:
    ticket = signed(TlsFiles(tls / "coordinator"))
    late = refused(verifier, ticket, NOW + LIFETIME + LEEWAY + SECOND, code=ErrorCode.TICKET_EXPIRED)
    assert "ended at 00:01:00 UTC and it is 00:01:31 here" in late and "clocks" in late
    assert "signed at 00:00:00 UTC and it is 23:59:29 here" in refused(verifier, ticket, NOW - LEEWAY - SECOND)


def test_a_changed_body_signature_or_certificate_is_refused(tls: Path, verifier: ReadTicketVerifier) -> None:
    good = signed(TlsFiles(tls / "coordinator"))
    other = ReadTicketBody.FromString(good.body)
    other.run_ids.append(9)
    for changed in (
        ReadTicket(body=other.SerializeToString(), signature=good.signature, certificate=good.certificate),
        ReadTicket(body=good.body, signature=b"", certificate=good.certificate),
        ReadTicket(
            body=good.body, signature=signed(TlsFiles(tls / "executor")).signature, certificate=good.certificate
        ),
    ):
        assert "signature" in refused(verifier, changed)
    assert "no certificate" in refused(verifier, ReadTicket(body=good.body, signature=good.signature))


@pytest.mark.parametrize("service", ["executor", "log-archiver", "admin-web", "admin-cli", "external-worker"])
def test_only_a_coordinator_signs(tls: Path, verifier: ReadTicketVerifier, service: str) -> None:
    assert "not by a coordinator" in refused(verifier, signed(TlsFiles(tls / service)))


def test_another_installation_is_refused(tmp_path: Path, verifier: ReadTicketVerifier) -> None:
    foreign = certs.make_all(tmp_path / "foreign")
    assert "not of our CA" in refused(verifier, signed(TlsFiles(foreign / "coordinator")))


def test_the_signers_certificate_must_be_valid_now(forge: Any, verifier: ReadTicketVerifier) -> None:
    ticket = signed(forge(COORDINATOR, DNS, valid=(NOW - timedelta(days=1), NOW - timedelta(minutes=1))))
    assert "certificate is not valid at this time" in refused(verifier, ticket)


def test_it_carries_the_most_runs_that_are_allowed_and_not_more(tls: Path, verifier: ReadTicketVerifier) -> None:
    files = TlsFiles(tls / "coordinator")
    largest = [2**63 - 1 - number for number in range(MAX_RUNS)]
    assert len(verifier.verify(signed(files, *largest), run_ids=largest, now=NOW).run_ids) == MAX_RUNS
    assert "too large" in refused(verifier, signed(files, *([2**63 - 1] * 2 * MAX_RUNS)))


@pytest.mark.parametrize(
    "prefix", [b"", *(b" " * 64 + label.encode() + b"\0" for label in (LOG_TICKET, SIGNED_EPOCH, "TLS 1.3"))]
)
def test_what_the_key_signs_elsewhere_is_no_read_ticket(tls: Path, verifier: ReadTicketVerifier, prefix: bytes) -> None:
    files = TlsFiles(tls / "coordinator")
    ticket = signed(files)
    ticket.signature = files.current().key.sign(prefix + ticket.body, ec.ECDSA(SHA256()))
    assert "signature" in refused(verifier, ticket)


def test_a_read_ticket_is_no_log_ticket_and_a_log_ticket_no_read_ticket(
    tls: Path, verifier: ReadTicketVerifier
) -> None:
    files = TlsFiles(tls / "coordinator")
    for_lines = TicketSigner(files).sign(run_id=7, token=1, incarnation="i1", log_day="2027-01-01")
    as_read = ReadTicket(body=for_lines.body, signature=for_lines.signature, certificate=for_lines.certificate)
    assert "signature" in refused(verifier, as_read)
    body = LogTicketBody(run_id=7, token=1, incarnation="i1", log_day="2027-01-01").SerializeToString()
    signature, certificate = sign(files, READ_TICKET, body)
    of_lines = type(for_lines)(body=body, signature=signature, certificate=certificate)
    with pytest.raises(TobanError, match="signature"):
        TicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal").verify(of_lines, now=NOW)


def test_a_body_that_cannot_be_read_is_refused_though_signed(tls: Path, verifier: ReadTicketVerifier) -> None:
    signature, certificate = sign(TlsFiles(tls / "coordinator"), READ_TICKET, b"\xff\xff")
    assert "body" in refused(verifier, ReadTicket(body=b"\xff\xff", signature=signature, certificate=certificate))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=600), st.binary(max_size=100), st.binary(max_size=600))
def test_noise_is_refused_and_never_breaks(
    verifier: ReadTicketVerifier, body: bytes, signature: bytes, der: bytes
) -> None:
    refused(verifier, ReadTicket(body=body, signature=signature, certificate=der))
