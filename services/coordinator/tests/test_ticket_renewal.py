"""Renewal of many log tickets at once: other calls of the coordinator have their turn meanwhile."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from toban_coordinator.adapters.ticket_renewal import MAX_TICKETS, SLICE, TicketRenewal
from toban_coordinator.ports.orders import ExecutorFacts
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1.common_pb2 import LogTicket
from toban_runtime.clock import SystemClock
from toban_transport.log_ticket import TicketHolder, TicketSigner
from toban_transport.tls import TlsFiles

INCARNATION = "00000000-0000-4000-8000-000000000001"
CALLER = ExecutorFacts(
    incarnation=INCARNATION, group="default", key_hash=b"n" * 32, secret_hash=b"s" * 32, proves_log_key=True
)


@pytest.fixture
def renewal(tls: Path) -> TicketRenewal:
    return TicketRenewal(TlsFiles(tls / "coordinator"), "toban.internal", shared_identity=False, clock=SystemClock())


@pytest.fixture
def tickets(tls: Path) -> list[LogTicket]:
    """As many as one request may have."""
    signer = TicketSigner(TlsFiles(tls / "coordinator"))
    holder = TicketHolder(key_hash=b"k" * 32, instance_hash=b"s" * 32, group="default")
    return [
        signer.sign(run_id=number, token=number, incarnation=INCARNATION, log_day="2026-11-21", holder=holder)
        for number in range(1, MAX_TICKETS + 1)
    ]


async def test_other_work_has_its_turn_between_tickets(renewal: TicketRenewal, tickets: list[LogTicket]) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = turns
    answers = await renewal.renew(CALLER, tickets)
    assert turns - before >= MAX_TICKETS // SLICE - 1
    beside.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beside
    assert len(answers) == MAX_TICKETS and not any(answer.refusal for answer in answers)


async def test_the_answers_are_in_the_order_of_the_request(renewal: TicketRenewal, tickets: list[LogTicket]) -> None:
    spoiled = [LogTicket() if number % 7 == 0 else ticket for number, ticket in enumerate(tickets)]
    answers = await renewal.renew(CALLER, spoiled)
    assert [number for number, answer in enumerate(answers) if answer.refusal] == list(range(0, MAX_TICKETS, 7))


async def test_more_tickets_than_a_request_may_have(renewal: TicketRenewal, tickets: list[LogTicket]) -> None:
    with pytest.raises(TobanError, match=f"send at most {MAX_TICKETS}") as caught:
        await renewal.renew(CALLER, [*tickets, LogTicket()])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
