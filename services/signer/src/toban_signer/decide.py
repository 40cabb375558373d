"""What the signer signs. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import check_name
from toban_transport.authz import EXECUTOR
from toban_transport.issue import leaf

MAX_REQUEST_BYTES = 16_384


def public_key(request_pem: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a request for a certificate, whose owner has signed it. Raises INVALID_ARGUMENT."""
    if len(request_pem) > MAX_REQUEST_BYTES:
        raise _bad(f"has more than {MAX_REQUEST_BYTES} bytes")
    try:
        request = x509.load_pem_x509_csr(request_pem)
        key = request.public_key()
        # Before the signature: that of a large RSA key takes CPU time.
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
            raise _bad("has another key than one of EC P-256")
        signed = request.is_signature_valid
    except UnsupportedAlgorithm as error:
        raise _bad(f"has an algorithm that is not supported ({error}); its key is one of EC P-256") from None
    except (ValueError, TypeError, InvalidSignature, x509.InvalidVersion) as error:
        raise _bad(f"cannot be read ({error}); it is PKCS #10 in PEM") from None
    if not signed:
        raise _bad("is not signed with its own key")
    return key


def certificate(
    request_pem: bytes, name: str, authority: x509.Certificate, trust_domain: str, now: datetime, validity: timedelta
) -> x509.CertificateBuilder:
    """The certificate of an executor, with the key of the request and nothing else of it; to be signed.

    Raises INVALID_ARGUMENT for such a request, PERMISSION_DENIED for another name than `executor` or `executor/<group>`, CONFIG_INVALID when
    the authority has ended.
    """
    service, slash, group = name.partition("/")
    if service != EXECUTOR:
        raise TobanError(ErrorCode.PERMISSION_DENIED, f"the signer signs for executors only, not for {name[:64]!r}")
    if slash:
        check_name(group)
    ends_at = min(now + validity, authority.not_valid_after_utc)
    if ends_at <= now:
        message = f"the authority of the signer ended at {ends_at:%Y-%m-%d %H:%M:%S} UTC; give SCHEDULER_CA_DIR the one that signs now"
        raise TobanError(ErrorCode.CONFIG_INVALID, message)
    return leaf(authority, name, trust_domain, public_key(request_pem), now, ends_at - now)


def _bad(problem: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, f"the request for a certificate {problem}")
