"""Certificates that no authority of ours would make: any names, any validity, signed by our authority, by a leaf of it, or by a stranger's key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START = datetime(2026, 1, 1, tzinfo=UTC)
VALID = (START, START + timedelta(days=9000))


def forge(
    tls: Path,
    folder: Path,
    uris: Sequence[str],
    dns: Sequence[str],
    *,
    own_ca: bool = False,
    signed_by: str = "",
    common_name: str = "x",
    valid: tuple[datetime, datetime] = VALID,
) -> Path:
    """Makes `folder` with tls.key, tls.crt and our ca.crt; returns it.

    The issuer is the authority in `tls`/ca by name. With `own_ca` the signature is of another key; `signed_by` names the service in `tls` whose
    certificate is the issuer instead, and follows in the file.
    """
    ca = tls / "ca" / "ca"
    issuer = tls / signed_by / "tls" if signed_by else ca
    authority = x509.load_pem_x509_certificate(issuer.with_suffix(".crt").read_bytes())
    signer = serialization.load_pem_private_key(issuer.with_suffix(".key").read_bytes(), password=None)
    key = ec.generate_private_key(ec.SECP256R1())
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    names = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, dns)]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(ec.generate_private_key(ec.SECP256R1()) if own_ca else signer, hashes.SHA256())
    folder.mkdir(parents=True)
    (folder / "tls.key").touch(mode=0o600)
    pem = serialization.Encoding.PEM
    (folder / "tls.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    above = issuer.with_suffix(".crt").read_bytes() if signed_by else b""
    (folder / "tls.crt").write_bytes(certificate.public_bytes(pem) + above)
    (folder / "ca.crt").write_bytes(ca.with_suffix(".crt").read_bytes())
    return folder
