"""Log tickets for lines that an earlier incarnation of an instance has left: signed again for the key of the present one."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from datetime import timedelta

from toban_coordinator.ports.orders import ExecutorFacts
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_proto.v1.common_pb2 import LogTicket, LogTicketBody
from toban_proto.v1.coordinator_pb2 import RenewedLogTicket
from toban_runtime.clock import Clock
from toban_transport.log_ticket import TicketHolder, TicketSigner, TicketVerifier
from toban_transport.tls import TlsFiles

MAX_TICKETS = 200
"""Tickets of one request."""
SLICE = 10
"""Tickets after which other work of the event loop has its turn: each takes about 0.1 ms, to verify the old signature and to make a new one."""
# An executor may come back after its coordinators have renewed their certificates many times; log-archivers refuse days that are too old.
LEEWAY = timedelta(days=400)
_renewals = metrics.counter(
    "toban_log_ticket_renewals_total",
    "Log tickets that executors asked to renew, by result: renewed, refused.",
    ("result",),
)
for _result in ("renewed", "refused"):
    _renewals.labels(_result)


class TicketRenewal:
    """Signs a ticket again for an executor that proves the secret of the instance that the ticket was signed for."""

    def __init__(self, tls: TlsFiles, trust_domain: str, *, shared_identity: bool, clock: Clock) -> None:
        self._signer = TicketSigner(tls)
        self._verifier = TicketVerifier(tls, trust_domain, leeway=LEEWAY, shared_identity=shared_identity)
        self._clock = clock

    async def renew(self, caller: ExecutorFacts, tickets: Sequence[LogTicket]) -> list[RenewedLogTicket]:
        """One answer for each. Raises INVALID_ARGUMENT for more than MAX_TICKETS. Gives way to other work of the event loop."""
        if len(tickets) > MAX_TICKETS:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"{len(tickets)} tickets in one request; send at most {MAX_TICKETS}"
            )
        answers: list[RenewedLogTicket] = []
        for first in range(0, len(tickets), SLICE):
            answers += [self._renewed(caller, ticket) for ticket in tickets[first : first + SLICE]]
            await asyncio.sleep(0)
        refused = sum(1 for answer in answers if answer.refusal)
        _renewals.labels("refused").inc(refused)
        _renewals.labels("renewed").inc(len(answers) - refused)
        return answers

    def _renewed(self, caller: ExecutorFacts, ticket: LogTicket) -> RenewedLogTicket:
        try:
            body = self._verifier.verify(ticket, now=self._clock.wall())
        except TobanError as error:
            return RenewedLogTicket(refusal=error.message)
        if not _same_instance(body, caller):
            return RenewedLogTicket(
                refusal=f"the log ticket of run {body.run_id} is of another instance, or of another secret of it"
            )
        holder = TicketHolder(key_hash=caller.key_hash, instance_hash=caller.secret_hash or b"", group=caller.group)
        renewed = self._signer.sign(
            run_id=body.run_id, token=body.token, incarnation=body.incarnation, log_day=body.log_day, holder=holder
        )
        return RenewedLogTicket(ticket=renewed)


def _same_instance(body: LogTicketBody, caller: ExecutorFacts) -> bool:
    """By the secret of the instance; by the incarnation itself where the ticket names none."""
    if body.instance_hash:
        return caller.secret_hash is not None and hmac.compare_digest(body.instance_hash, caller.secret_hash)
    return body.incarnation == caller.incarnation
