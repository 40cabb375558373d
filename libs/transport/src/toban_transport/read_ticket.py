"""Read tickets: a coordinator's statement that its caller may read the output of some runs, for about a minute.

Signed like log tickets, so that a log-archiver needs only the CA, calls no coordinator, and never learns who may see which job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from google.protobuf.message import DecodeError

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.common_pb2 import ReadTicket, ReadTicketBody
from toban_transport.coordinator_signature import READ_TICKET, BadSignature, SignatureCheck, sign
from toban_transport.log_ticket import CLOCK_LEEWAY
from toban_transport.tls import TlsFiles

LIFETIME = timedelta(seconds=60)
# The clocks of a coordinator and of a log-archiver may differ by this.
LEEWAY = timedelta(seconds=30)
MAX_RUNS = 1000
"""Runs of one ticket."""
# A run's number has at most 10 bytes; the rest is the actor and two times.
_MAX_BYTES = MAX_RUNS * 10 + 1024


class ReadTicketSigner:
    """Signs with the key that the coordinator's TLS files hold now."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls

    def sign(self, *, actor: str, run_ids: Sequence[int], now: datetime) -> ReadTicket:
        """A ticket of `actor` for these runs, from `now` on for LIFETIME."""
        signed_at = int(now.timestamp())
        ends_at = signed_at + int(LIFETIME.total_seconds())
        body = ReadTicketBody(actor=actor, run_ids=run_ids, signed_at=signed_at, ends_at=ends_at)
        text = body.SerializeToString(deterministic=True)
        signature, certificate = sign(self._tls, READ_TICKET, text)
        return ReadTicket(body=text, signature=signature, certificate=certificate)


class ReadTicketVerifier:
    """Verifies tickets against the CA in the log-archiver's own TLS files. `shared_identity`: as for log tickets."""

    def __init__(self, tls: TlsFiles, trust_domain: str, *, shared_identity: bool = False) -> None:
        self._check = SignatureCheck(tls, trust_domain, shared_identity=shared_identity, max_body_bytes=_MAX_BYTES)

    def verify(self, ticket: ReadTicket, *, run_ids: Collection[int], now: datetime) -> ReadTicketBody:
        """The body of a ticket for all of `run_ids`. Raises TobanError TICKET_INVALID, TICKET_EXPIRED, PERMISSION_DENIED."""
        signed = {"body": ticket.body, "signature": ticket.signature, "certificate": ticket.certificate}
        try:
            certificate = self._check.verify(READ_TICKET, **signed)
            body = ReadTicketBody.FromString(ticket.body)
        except BadSignature as error:
            raise _invalid(str(error)) from None
        except DecodeError:
            raise _invalid("its body cannot be read") from None
        if not certificate.not_valid_before_utc - CLOCK_LEEWAY <= now <= certificate.not_valid_after_utc + LEEWAY:
            raise _invalid("its signer's certificate is not valid at this time")
        check_time(body, now)
        if missing := sorted(set(run_ids) - set(body.run_ids)):
            message = f"the read ticket of {body.actor} is not for run {missing[0]}; ask a coordinator for one (GetReadTicket)"
            raise TobanError(ErrorCode.PERMISSION_DENIED, message)
        return body


def check_time(body: ReadTicketBody, now: datetime) -> None:
    """Raises TICKET_EXPIRED, and TICKET_INVALID for a ticket of the future."""
    ends_at, signed_at = (datetime.fromtimestamp(moment, UTC) for moment in (body.ends_at, body.signed_at))
    if now > ends_at + LEEWAY:
        message = (
            f"the read ticket of {body.actor} ended at {ends_at:%H:%M:%S} UTC and it is {now:%H:%M:%S} here: ask a coordinator "
            "for another one; if that one has ended too, compare the clocks of coordinator and log-archiver"
        )
        raise TobanError(ErrorCode.TICKET_EXPIRED, message)
    if now < signed_at - LEEWAY:
        raise _invalid(
            f"it was signed at {signed_at:%H:%M:%S} UTC and it is {now:%H:%M:%S} here: compare the clocks of coordinator and log-archiver"
        )


def _invalid(why: str) -> TobanError:
    return TobanError(ErrorCode.TICKET_INVALID, f"the read ticket is refused: {why}")
