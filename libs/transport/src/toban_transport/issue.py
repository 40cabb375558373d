"""What a certificate of ours contains, for the development authority and the signer, and how a machine asks for one and keeps it."""

import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.private_file import write_private
from toban_transport.authz import EXTERNAL_WORKER
from toban_transport.identity import dns_name

BACKDATE = timedelta(hours=1)
"""Clocks of machines differ."""
# New files wait here, whole, until they take their places.
_STAGED = ".renewed"


def spiffe_id(service: str, trust_domain: str) -> str:
    """The URI that names `service` in its certificate."""
    return f"spiffe://{trust_domain}/{service}"


def leaf(
    authority: x509.Certificate,
    service: str,
    trust_domain: str,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    validity: timedelta,
) -> x509.CertificateBuilder:
    """The certificate of a service, of `executor/<group>` or of `external-worker/<type>`; to be signed."""
    first = service.partition("/")[0]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, first)])
    authority_id = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    names = [
        x509.UniformResourceIdentifier(spiffe_id(service, trust_domain)),
        # External workers are clients only: no server of theirs is pinned by type.
        x509.DNSName(dns_name(first if first == EXTERNAL_WORKER else service, trust_domain)),
    ]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        builder(name, authority.subject, public_key, now, validity)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
    )


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    validity: timedelta,
) -> x509.CertificateBuilder:
    """Names, key, serial number and validity."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + validity)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Of an authority, or of a service."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key, as files of ours have it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_request() -> tuple[bytes, bytes]:
    """A new key, and the request for a certificate that proves it (PKCS #10). Both are PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Its names count for nothing: who signs chooses them.
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return pem(key), request.public_bytes(serialization.Encoding.PEM)


def keep(directory: Path, *, key: bytes, certificate: bytes, authorities: bytes = b"") -> None:
    """Replaces the files of `directory` together; without `authorities` ca.crt stays. What an earlier call left is completed first.

    Readers that meet the new key beside the old certificate wait for the other (`toban_transport.tls`). When the machine stops in between,
    `complete` goes on. Raises INTERNAL for a certificate that is not of this key, and OSError; no file is changed then, or `complete` goes on.
    """
    _check_pair(key, certificate)
    complete(directory)
    draft = directory / f"{_STAGED}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    for name, content in (("ca.crt", authorities), ("tls.key", key), ("tls.crt", certificate)):
        if content:
            write_private(draft / name, content)
            _flush(draft / name)
    _flush(draft)
    draft.rename(directory / _STAGED)
    _flush(directory)
    complete(directory)


def complete(directory: Path) -> None:
    """Goes on with a replacement of files by `keep` that was interrupted, if there is one. Raises OSError."""
    staged = directory / _STAGED
    if not staged.is_dir():
        return
    for name in ("ca.crt", "tls.key", "tls.crt"):
        if (staged / name).exists():
            (staged / name).replace(directory / name)
    _flush(directory)
    staged.rmdir()


def _check_pair(key: bytes, certificate: bytes) -> None:
    private = serialization.load_pem_private_key(key, password=None)
    try:
        fits = x509.load_pem_x509_certificate(certificate).public_key() == private.public_key()
    except ValueError:
        fits = False
    if not fits:
        raise TobanError(ErrorCode.INTERNAL, "the answer is no certificate of this key; no file was changed")


def _flush(path: Path) -> None:
    """A crash of the machine does not undo what comes before."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
