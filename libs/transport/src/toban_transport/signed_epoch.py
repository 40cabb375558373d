"""Signed epochs: what a coordinator states with each grant, and an executor presents when PostgreSQL may have gone back (docs/fencing.md 3.2)."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from toban_domain.epoch import EpochProof
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.common_pb2 import SignedEpoch, SignedEpochBody
from toban_transport.coordinator_signature import SIGNED_EPOCH, BadSignature, SignatureCheck, sign
from toban_transport.tls import TlsFiles


class EpochSigner:
    """Signs with the key that the coordinator's TLS files hold now."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls

    def sign(self, proof: EpochProof) -> SignedEpoch:
        """About 50 µs of CPU."""
        body = SignedEpochBody(
            cluster_id=proof.cluster_id,
            epoch=proof.epoch,
            incarnation=proof.incarnation,
            grant_seq=proof.grant_seq,
            signed_at=proof.signed_at,
            nonce=proof.nonce,
        ).SerializeToString(deterministic=True)
        signature, certificate = sign(self._tls, SIGNED_EPOCH, body)
        return SignedEpoch(body=body, signature=signature, certificate=certificate)


class EpochVerifier:
    """Verifies against the CA in its own TLS files. The dates of the signer's certificate do not matter: it was valid when PostgreSQL committed
    the grant, and an executor may come back years later."""

    def __init__(self, tls: TlsFiles, trust_domain: str, *, shared_identity: bool = False) -> None:
        self._check = SignatureCheck(tls, trust_domain, shared_identity=shared_identity)

    def verify(self, message: SignedEpoch) -> EpochProof:
        """What was signed. Raises TobanError EPOCH_UNPROVEN when no coordinator of our CA has signed it."""
        try:
            self._check.verify(
                SIGNED_EPOCH, body=message.body, signature=message.signature, certificate=message.certificate
            )
        except BadSignature as error:
            raise TobanError(ErrorCode.EPOCH_UNPROVEN, f"its signed epoch is refused: {error}") from None
        return read(message)


def read(message: SignedEpoch) -> EpochProof:
    """The content, not verified. Raises TobanError EPOCH_UNPROVEN when it is none."""
    try:
        body = SignedEpochBody.FromString(message.body)
    except DecodeError:
        raise TobanError(ErrorCode.EPOCH_UNPROVEN, "its signed epoch is refused: its body cannot be read") from None
    if body.epoch < 0 or body.grant_seq < 0 or not body.cluster_id or not body.incarnation:
        raise TobanError(
            ErrorCode.EPOCH_UNPROVEN, "its signed epoch is refused: its body lacks cluster_id or incarnation"
        )
    return EpochProof(
        cluster_id=body.cluster_id,
        epoch=body.epoch,
        incarnation=body.incarnation,
        grant_seq=body.grant_seq,
        signed_at=body.signed_at,
        nonce=body.nonce,
    )
