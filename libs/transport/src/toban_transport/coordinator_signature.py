"""Statements that coordinators sign with their TLS key, and that each process with the CA can verify.

What is signed is `64×0x20 ‖ label ‖ 0x00 ‖ body`, as TLS 1.3 does it. A TLS handshake signs with the same key, and a peer chooses part of what
is signed there; with the prefix no such signature is one of a statement, and one of a statement of one kind is none of another kind.
"""

from __future__ import annotations

from collections import OrderedDict

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from toban_domain.errors import TobanError
from toban_transport.authz import COORDINATOR, services_of
from toban_transport.certificate_chain import trusted
from toban_transport.identity import spiffe_ids
from toban_transport.tls import TlsFiles

# What reading an odd certificate raises, which anybody may send.
_NO_CERTIFICATE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

LOG_TICKET = "toban log ticket v1"
SIGNED_EPOCH = "toban signed epoch v1"
READ_TICKET = "toban read ticket v1"
# Tickets of the release before: the body alone was signed.
BARE = ""
MAX_BODY_BYTES = 512
MAX_CERTIFICATE_BYTES = 8192
# Certificates of signers that were found good: coordinators share one, and renew it rarely.
_KNOWN_SIGNERS = 64
_ALGORITHM = ec.ECDSA(SHA256())


class BadSignature(Exception):
    """Why a statement is refused, as the end of a sentence that begins with "refused:"."""


def signed_text(label: str, body: bytes) -> bytes:
    """What a signature over a statement covers."""
    return body if label == BARE else b" " * 64 + label.encode("ascii") + b"\0" + body


def sign(tls: TlsFiles, label: str, body: bytes) -> tuple[bytes, bytes]:
    """Signature and certificate (DER), with the key that the TLS files hold now."""
    triple = tls.current()
    return triple.key.sign(signed_text(label, body), _ALGORITHM), triple.certificate_der


class SignatureCheck:
    """Verifies statements against the CA in the verifier's own TLS files. It never looks at the times in a certificate: callers decide.

    `shared_identity`: a certificate that services have in common may sign too.
    """

    def __init__(
        self,
        tls: TlsFiles,
        trust_domain: str,
        *,
        shared_identity: bool = False,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._tls = tls
        self._max_body_bytes = max_body_bytes
        self._trust_domain = trust_domain
        self._shared = shared_identity
        self._authorities: tuple[x509.Certificate, ...] = ()
        self._signers: OrderedDict[bytes, x509.Certificate] = OrderedDict()

    def authorities(self) -> tuple[x509.Certificate, ...]:
        """The CA certificates in use; another object once they have changed, and what was found good before must be verified again."""
        current = self._tls.current().authorities
        if current is not self._authorities:
            self._signers.clear()
            self._authorities = current
        return current

    def verify(self, label: str, *, body: bytes, signature: bytes, certificate: bytes) -> x509.Certificate:
        """The signer's certificate. Raises BadSignature unless a coordinator of this CA has signed exactly this."""
        if len(body) > self._max_body_bytes or len(certificate) > MAX_CERTIFICATE_BYTES:
            raise BadSignature("it is too large")
        signer = self._signer(certificate)
        if signer.serial_number in self._tls.current().denied:
            raise BadSignature("its signer's certificate is on the deny-list")
        key = signer.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise BadSignature("its signer's key is not an EC key")
        try:
            key.verify(signature, signed_text(label, body), _ALGORITHM)
        except InvalidSignature:
            raise BadSignature("its signature does not match") from None
        return signer

    def _signer(self, der: bytes) -> x509.Certificate:
        authorities = self.authorities()
        known = self._signers.get(der)
        if known is not None:
            return known
        certificate = self._examined(der, authorities)
        self._signers[der] = certificate
        if len(self._signers) > _KNOWN_SIGNERS:
            self._signers.popitem(last=False)
        return certificate

    def _examined(self, der: bytes, authorities: tuple[x509.Certificate, ...]) -> x509.Certificate:
        try:
            certificate = x509.load_der_x509_certificate(der)
            names = spiffe_ids(certificate)
            known = any(trusted(certificate, by=authority) for authority in authorities)
        except _NO_CERTIFICATE:
            raise BadSignature("it carries no certificate") from None
        if not known:
            raise BadSignature("its signer's certificate is not of our CA")
        try:
            services = services_of(names, self._trust_domain, shared=self._shared)
        except TobanError as error:
            raise BadSignature(f"its signer is unknown: {error.message}") from None
        if COORDINATOR not in services:
            raise BadSignature(f"it is signed by service {min(services)!r}, not by a coordinator")
        return certificate
