"""Whether an authority stands behind a certificate, by the rules of X.509 (RFC 5280): signatures, names, who may sign, path lengths, purposes."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed448, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, Policy, PolicyBuilder, Store, VerificationError

_OURS = frozenset(
    {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
)
# The verification of the library knows the algorithms of public web servers only.
_NOT_OF_THE_WEB = (ed25519.Ed25519PublicKey, ed448.Ed448PublicKey)
_ANY = Criticality.AGNOSTIC


def trusted(certificate: x509.Certificate, *, by: x509.Certificate, between: Sequence[x509.Certificate] = ()) -> bool:
    """Whether a path leads from the certificate, over those `between` or directly, to the authority `by`.

    It has to hold at some instant, not at the present one: whether a certificate has expired is for callers to decide. A certificate that
    had ended before the authority was renewed, with the same key, has no such instant: then the authority's signature counts, as it does for an
    authority with a key of Ed25519 or Ed448.
    """
    moments = {item.not_valid_after_utc for item in (certificate, by, *between)}
    whole = (certificate, by)
    instants = [at for at in moments if all(one.not_valid_before_utc <= at <= one.not_valid_after_utc for one in whole)]
    if not instants or isinstance(by.public_key(), _NOT_OF_THE_WEB):
        return _issued(certificate, by=by)
    policies = PolicyBuilder().extension_policies(ca_policy=_AUTHORITY, ee_policy=_LEAF)
    for at in instants:
        verifier = policies.time(at).store(Store([by])).build_client_verifier()
        try:
            verifier.verify(certificate, list(between))
        except VerificationError:
            continue
        return True
    return False


def _issued(certificate: x509.Certificate, *, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
        return by.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False


def _may_sign(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("this certificate may not sign certificates")


def _no_authority(_: Policy, __: x509.Certificate, found: x509.BasicConstraints | None) -> None:
    if found is not None and found.ca:
        raise ValueError("this certificate is one of an authority")


def _for_tls(_: Policy, __: x509.Certificate, usages: x509.ExtendedKeyUsage | None) -> None:
    if usages is not None and not _OURS & set(usages):
        raise ValueError("this certificate is neither for clients nor for servers")


# Looser than for the web where authorities of companies are: no key identifiers, any criticality.
_AUTHORITY = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, _ANY, None)
    .may_be_present(x509.KeyUsage, _ANY, _may_sign)
)
_LEAF = (
    ExtensionPolicy.permit_all()
    .require_present(x509.SubjectAlternativeName, _ANY, None)
    .may_be_present(x509.BasicConstraints, _ANY, _no_authority)
    .may_be_present(x509.ExtendedKeyUsage, _ANY, _for_tls)
)
