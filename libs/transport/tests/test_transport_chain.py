"""Which authority stands behind a certificate: signatures, names, who may sign, path lengths, purposes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from toban_transport.certificate_chain import trusted

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("root", "middle", "low", "leaf", "other")}
SAN = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://toban.internal/coordinator")])
Extension = x509.ExtensionType


def made(
    name: str, by: str, *extensions: Extension, key: str = "", days: tuple[int, int] = (0, 365)
) -> x509.Certificate:
    """A certificate `name` with the key of that name, signed with the key of `by` or with `key`."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)]))
        .public_key(KEYS[name].public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN + timedelta(days=days[0]))
        .not_valid_after(BEGIN + timedelta(days=days[1]))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(KEYS[key or by], hashes.SHA256())


def authority(length: int | None = None) -> x509.BasicConstraints:
    return x509.BasicConstraints(ca=True, path_length=length)


def usage(*, signs: bool) -> x509.KeyUsage:
    others = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(digital_signature=True, key_cert_sign=signs, crl_sign=False, **others)


ROOT = made("root", "root", authority())
MIDDLE = made("middle", "root", authority(0))
LOW = made("low", "middle", authority())


def test_what_our_stack_and_other_authorities_make(tls: Path) -> None:
    ours, leaf = (
        x509.load_pem_x509_certificate((tls / name).read_bytes()) for name in ("ca/ca.crt", "executor/tls.crt")
    )
    assert trusted(leaf, by=ours)
    assert not trusted(leaf, by=ROOT)
    for purpose in (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH):
        assert trusted(made("leaf", "root", SAN, x509.ExtendedKeyUsage([purpose])), by=ROOT)
    assert trusted(made("leaf", "root", SAN), by=made("root", "root", authority(), usage(signs=True)))


def test_paths() -> None:
    below = made("leaf", "middle", SAN)
    assert trusted(below, by=ROOT, between=[MIDDLE])
    assert trusted(below, by=ROOT, between=[LOW, MIDDLE]), "the order is free"
    assert trusted(below, by=MIDDLE), "an authority that another one signed"
    assert not trusted(below, by=ROOT)
    assert not trusted(made("leaf", "low", SAN), by=ROOT, between=[LOW, MIDDLE]), "longer than the middle one may make"
    service = made("middle", "root", SAN)
    assert not trusted(below, by=ROOT, between=[service]), "a leaf signs nothing"


@pytest.mark.parametrize(
    ("leaf", "root"),
    [
        (made("leaf", "root", SAN, key="other"), ROOT),
        (made("leaf", "other", SAN, key="root"), ROOT),
        (made("leaf", "root", SAN, authority()), ROOT),
        (made("leaf", "root"), ROOT),
        (made("leaf", "root", SAN, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])), ROOT),
        (made("leaf", "root", SAN), made("root", "root")),
        (made("leaf", "root", SAN), made("root", "root", x509.BasicConstraints(ca=False, path_length=None))),
        (made("leaf", "root", SAN), made("root", "root", authority(), usage(signs=False))),
        (ROOT, ROOT),
    ],
    ids=["signature", "name", "authority", "no-names", "purpose", "constraints", "no-authority", "usage", "itself"],
)
def test_refused(leaf: x509.Certificate, root: x509.Certificate) -> None:
    assert not trusted(leaf, by=root)


def test_times_count_only_among_each_other() -> None:
    """Certificates of 2026, whatever day it is: each caller decides about the present."""
    assert trusted(made("leaf", "root", SAN, days=(10, 40)), by=ROOT)
    assert trusted(made("leaf", "root", SAN, days=(300, 700)), by=ROOT), "it outlives its authority"
    assert trusted(made("leaf", "root", SAN, days=(-100, 100)), by=ROOT), "the authority was renewed"
    for days in ((-100, -10), (400, 500)):
        assert trusted(made("leaf", "root", SAN, days=days), by=ROOT), "never valid together; its signature counts"
        assert not trusted(made("leaf", "root", SAN, key="other", days=days), by=ROOT)
        assert not trusted(made("leaf", "root", SAN, days=days), by=made("root", "root"))


def test_an_authority_with_a_key_that_public_web_servers_do_not_have() -> None:
    """Companies have some, and TLS takes them."""
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edwards")])

    def signed(subject: str, public: Any, *extensions: Extension) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            name,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]),
            public,
            7,
            BEGIN,
            BEGIN + timedelta(days=9),
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(key, None)

    root = signed("edwards", key.public_key(), authority())
    leaf = signed("leaf", KEYS["leaf"].public_key(), SAN)
    assert trusted(leaf, by=root) and not trusted(leaf, by=ROOT)
    assert not trusted(made("leaf", "root", SAN), by=root)
