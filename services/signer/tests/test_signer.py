"""The signer: what it signs, for whom, and with which authority. The server is the real one, over mTLS."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.joining_pb2 import SignedCertificate, SignRequest
from toban_proto.v1.joining_pb2_grpc import SignerStub
from toban_runtime.lifecycle import Stop
from toban_signer.config import SignerConfig
from toban_signer.decide import certificate, public_key
from toban_signer.main import serve
from toban_signer.server import read_authority
from toban_stack import certs
from toban_testing.waiting import until
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import unary
from toban_transport.identity import spiffe_ids
from toban_transport.issue import new_request
from toban_transport.tls import TlsFiles

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DOMAIN = certs.TRUST_DOMAIN
DER = serialization.Encoding.DER
# Object identifiers in DER.
P256 = bytes.fromhex("06082a8648ce3d030107")
EC_KEY = bytes.fromhex("06072a8648ce3d0201")
ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certs.make_all(tmp_path_factory.mktemp("tls"), groups=["pci"])


def request(key: object, name: str = "") -> bytes:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)] if name else [])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if name:
        uri = x509.UniformResourceIdentifier(f"spiffe://{DOMAIN}/{name}")
        builder = builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]


def pem_of(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE REQUEST-----\n"


def altered(pem: bytes, old: bytes, new: bytes) -> bytes:
    """The request with one object identifier replaced."""
    der = x509.load_pem_x509_csr(pem).public_bytes(DER)
    assert old in der
    return pem_of(der.replace(old, new))


def code_of(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(TobanError) as caught:
        work()
    return caught.value.code


def made(tls: Path, asked: bytes, name: str = "executor", validity: timedelta = timedelta(days=30)) -> x509.Certificate:
    authority = read_authority(tls / "ca")
    builder = certificate(asked, name, authority.certificate, DOMAIN, NOW, validity)
    return builder.sign(authority.key, hashes.SHA256())


def test_nothing_of_the_request_but_its_key_is_in_the_certificate(tls: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    found = made(tls, request(key, "coordinator"), "executor/pci")
    assert found.public_key() == key.public_key()
    assert spiffe_ids(found) == (f"spiffe://{DOMAIN}/executor/pci",)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [f"pci.executor.{DOMAIN}"]
    assert found.subject.rfc4514_string() == "CN=executor"
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_no_certificate_outlives_the_authority(tls: Path) -> None:
    authority = read_authority(tls / "ca").certificate
    found = made(tls, new_request()[1], validity=timedelta(days=20_000))
    assert found.not_valid_after_utc == authority.not_valid_after_utc


@pytest.mark.parametrize(
    "name", ["coordinator", "admin-web", "signer", "admin-cli", "shared/x", "external-worker/a", "", "executors"]
)
def test_it_signs_for_executors_only(name: str, tls: Path) -> None:
    assert code_of(lambda: made(tls, new_request()[1], name)) is ErrorCode.PERMISSION_DENIED


@pytest.mark.parametrize("name", ["executor/", "executor/A b", "executor/a/b", "executor/../coordinator"])
def test_a_name_that_no_group_has_is_refused(name: str, tls: Path) -> None:
    assert code_of(lambda: made(tls, new_request()[1], name)) is ErrorCode.INVALID_ARGUMENT


def test_other_keys_and_texts_are_refused() -> None:
    good = request(ec.generate_private_key(ec.SECP256R1()))
    foreign = request(ec.generate_private_key(ec.SECP256R1())).splitlines()
    # The signature of one request below the content of another.
    mixed = b"\n".join([*good.splitlines()[:-3], *foreign[-3:]])
    wrong = [
        b"",
        b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        mixed,
        good * 60,
        request(ec.generate_private_key(ec.SECP384R1())),
        request(ed25519.Ed25519PrivateKey.generate()),
        request(rsa.generate_private_key(65537, 2048)),
        # Its curve, and its key's algorithm, have numbers that no library knows; so has the algorithm of its signature.
        altered(good, P256, P256[:-1] + b"\x63"),
        altered(good, EC_KEY, EC_KEY[:-1] + b"\x63"),
        altered(good, ECDSA_SHA256, ECDSA_SHA256[:-1] + b"\x63"),
    ]
    for number, one in enumerate(wrong):
        with pytest.raises(TobanError) as caught:
            pytest.fail(f"number {number} gave {public_key(one)}")
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT, number


def test_the_kind_of_key_is_decided_before_a_signature_is_verified() -> None:
    spoiled = bytearray(x509.load_pem_x509_csr(request(rsa.generate_private_key(65537, 2048))).public_bytes(DER))
    spoiled[-1] ^= 1
    with pytest.raises(TobanError, match="another key than one of EC P-256"):
        public_key(pem_of(bytes(spoiled)))


@pytest.mark.parametrize("late", [timedelta(0), timedelta(minutes=30), timedelta(days=1)])
def test_an_authority_that_has_ended_signs_nothing(late: timedelta, tls: Path) -> None:
    authority = read_authority(tls / "ca").certificate
    now = authority.not_valid_after_utc + late
    with pytest.raises(TobanError, match=r"authority of the signer ended at .*SCHEDULER_CA_DIR") as caught:
        certificate(new_request()[1], "executor", authority, DOMAIN, now, timedelta(days=30))
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_an_authority_that_is_none_stops_the_start(tls: Path, tmp_path: Path) -> None:
    def problem(folder: Path) -> str:
        with pytest.raises(TobanError) as caught:
            read_authority(folder)
        assert caught.value.code is ErrorCode.CONFIG_INVALID
        return caught.value.message

    assert "it needs ca.crt and ca.key" in problem(tmp_path)
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_bytes((tls / "ca" / name).read_bytes())
    assert "can be read by others" in problem(tmp_path)
    (tmp_path / "ca.key").chmod(0o600)
    (tmp_path / "ca.crt").write_bytes((tls / "executor/tls.crt").read_bytes())
    assert "is not the EC key of" in problem(tmp_path)


@pytest.fixture
async def sign(tls: Path, tmp_path: Path) -> AsyncIterator[Callable[[str, SignRequest], Awaitable[SignedCertificate]]]:
    """`await sign(service, request)`: the answer to this certificate."""
    ready = tmp_path / "ready"
    config = SignerConfig(ca_dir=tls / "ca", tls_dir=tls / "signer", ready_file=ready, certificate_days=2)
    stop = Stop()
    serving = asyncio.ensure_future(serve(config, stop))
    await until(lambda: ready.exists() or serving.done())
    port = json.loads(ready.read_text())["grpc_port"]
    pools = []

    async def ask(service: str, asked: SignRequest) -> SignedCertificate:
        channels = ChannelPool(tls=TlsFiles(tls / service), trust_domain=DOMAIN)
        pools.append(channels)
        channel = channels.get(f"127.0.0.1:{port}", "signer")
        return await unary(SignerStub(channel).Sign, asked, timeout=5.0)

    yield ask
    for channels in pools:
        await channels.close()
    stop.request("the test is over")
    await serving


async def test_coordinators_alone_are_answered(
    sign: Callable[[str, SignRequest], Awaitable[SignedCertificate]], tls: Path
) -> None:
    asked = SignRequest(request_pem=new_request()[1], name="executor")
    answer = await sign("coordinator", asked)
    found = x509.load_pem_x509_certificate(answer.certificate_pem)
    found.verify_directly_issued_by(read_authority(tls / "ca").certificate)
    assert found.not_valid_after_utc - found.not_valid_before_utc == timedelta(days=2, hours=1)
    for service in ("executor", "executor-pci", "log-archiver", "admin-web", "admin-cli", "external-worker", "signer"):
        with pytest.raises(TobanError) as caught:
            await sign(service, asked)
        assert caught.value.code is ErrorCode.PERMISSION_DENIED, service
