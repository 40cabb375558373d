"""Log tickets: a coordinator's signed word that one attempt of one executor incarnation may append log lines.

The signature is made with the coordinator's TLS key; the ticket carries the certificate, so that a log-archiver needs only the CA. A ticket names
the hash of the incarnation's key: without the key it is of no use, and the key is in no file.
"""

import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from cryptography import x509
from google.protobuf.message import DecodeError

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.common_pb2 import LogTicket, LogTicketBody
from toban_transport.coordinator_signature import BARE, LOG_TICKET, BadSignature, SignatureCheck, sign
from toban_transport.tls import TlsFiles

_CACHE_SIZE = 4096
# The verifier's clock may be so far behind that of the CA which has just issued the signer's certificate.
CLOCK_LEEWAY = timedelta(minutes=10)
# Two numbers of at most 11 bytes, a UUID and a day with 2 bytes each in front.
_BARE_BYTES = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketHolder:
    """Who may present a ticket: the incarnation whose key has this hash, with a certificate of this group of executors; empty = not checked.

    `instance_hash` is that of its instance's secret: the next incarnation of the instance gets a ticket of its own in place of this one.
    """

    key_hash: bytes = field(default=b"", repr=False)
    instance_hash: bytes = field(default=b"", repr=False)
    group: str = ""


ANYBODY = TicketHolder()
"""For executors of releases that do not prove their key."""


class TicketSigner:
    """Signs with the key that the coordinator's TLS files hold now."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls

    def sign(
        self, *, run_id: int, token: int, incarnation: str, log_day: date | str, holder: TicketHolder = ANYBODY
    ) -> LogTicket:
        """A ticket for (run, token) on this incarnation; `log_day` is PostgreSQL's day of the dispatch."""
        body = LogTicketBody(
            run_id=run_id,
            token=token,
            incarnation=incarnation,
            log_day=str(log_day),
            key_hash=holder.key_hash,
            instance_hash=holder.instance_hash,
            executor_group=holder.group,
        )
        text = body.SerializeToString(deterministic=True)
        signature, certificate = sign(self._tls, LOG_TICKET, text)
        return LogTicket(body=text, signature=signature, certificate=certificate)


class TicketVerifier:
    """Verifies tickets against the CA in the archiver's own TLS files; remembers those that were good, by digest.

    `leeway` is how long after its end a signer's certificate still counts: a job may run, and its lines may wait for an archiver, longer
    than the certificate that was current at its dispatch. `shared_identity`: a certificate that services have in common may sign too.
    """

    def __init__(
        self, tls: TlsFiles, trust_domain: str, *, leeway: timedelta = timedelta(0), shared_identity: bool = False
    ) -> None:
        self._check = SignatureCheck(tls, trust_domain, shared_identity=shared_identity)
        self._leeway = leeway
        self._good: OrderedDict[bytes, tuple[LogTicketBody, x509.Certificate]] = OrderedDict()
        self._authorities: tuple[x509.Certificate, ...] = ()

    def verify(self, ticket: LogTicket, *, now: datetime) -> LogTicketBody:
        """The body of a good ticket. Raises TobanError TICKET_INVALID. `now` is aware of its zone."""
        authorities = self._check.authorities()
        if authorities is not self._authorities:
            # Another CA bundle: what the old one vouched for must be looked at again.
            self._good.clear()
            self._authorities = authorities
        digest = _digest(ticket)
        held = self._good.get(digest)
        if held is None:
            held = self._good[digest] = self._examined(ticket)
            if len(self._good) > _CACHE_SIZE:
                self._good.popitem(last=False)
        body, certificate = held
        begin = certificate.not_valid_before_utc - CLOCK_LEEWAY
        if not begin <= now <= certificate.not_valid_after_utc + self._leeway:
            raise _invalid("its signer's certificate is not valid at this time")
        return body

    def _examined(self, ticket: LogTicket) -> tuple[LogTicketBody, x509.Certificate]:
        signed = {"body": ticket.body, "signature": ticket.signature, "certificate": ticket.certificate}
        try:
            certificate = self._check.verify(LOG_TICKET, **signed)
        except BadSignature as error:
            if not _of_the_last_release(ticket.body):
                raise _invalid(str(error)) from None
            try:
                certificate = self._check.verify(BARE, **signed)
            except BadSignature as bare:
                raise _invalid(str(bare)) from None
        return _body(ticket.body), certificate


def check_holder(body: LogTicketBody, holder: TicketHolder) -> None:
    """Raises TICKET_INVALID unless `holder`, with the hash of the key that it has proven, may present this ticket."""
    if body.key_hash and not hmac.compare_digest(body.key_hash, holder.key_hash):
        raise _invalid(
            "its incarnation's key is not proven; an executor sends the key of its incarnation, and gets tickets of earlier "
            "incarnations renewed by a coordinator"
        )
    if body.executor_group and body.executor_group != holder.group:
        raise _invalid(
            f"it is for executor group {body.executor_group!r}, and the caller's certificate is of group {holder.group!r}"
        )


def _digest(ticket: LogTicket) -> bytes:
    # Lengths first, so that two tickets cannot share a text by moving bytes from one field to the next.
    parts = (ticket.body, ticket.signature, ticket.certificate)
    return hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


def _of_the_last_release(text: bytes) -> bool:
    """Whether this can be the body of a ticket that was signed without a label, for runs that were sent before the upgrade.

    Its fields have fixed lengths and nothing else is in it, so it is shorter than everything that a TLS handshake signs (100 bytes and more).
    """
    try:
        body = LogTicketBody.FromString(text)
    except DecodeError:
        return False
    body.DiscardUnknownFields()
    canonical = body.SerializeToString(deterministic=True) == text
    return canonical and len(text) <= _BARE_BYTES and len(body.incarnation) == 36 and len(body.log_day) == 10


def _body(text: bytes) -> LogTicketBody:
    try:
        body = LogTicketBody.FromString(text)
        date.fromisoformat(body.log_day)
    except (DecodeError, ValueError):
        raise _invalid("its body cannot be read") from None
    if body.run_id <= 0 or body.token <= 0 or not body.incarnation:
        raise _invalid("its body lacks run_id, token or incarnation")
    return body


def _invalid(why: str) -> TobanError:
    return TobanError(ErrorCode.TICKET_INVALID, f"the log ticket is refused: {why}")
