"""Read tickets of a command: fetched with the person's credential, used again, renewed before they end, narrowed for a search."""

from __future__ import annotations

from typing import Any

import pytest

from toban_cli.read_tickets import RENEW_SECONDS, ReadTickets
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_proto.v1.common_pb2 import ReadTicket
from toban_testing.clock import FakeClock


class Coordinator:
    """Gives numbered tickets of a minute for runs below 100."""

    def __init__(self) -> None:
        self.given = 0
        self.failure: TobanError | None = None

    def fetch(self, request: pb.GetReadTicketRequest) -> pb.GetReadTicketResponse:
        if self.failure is not None:
            raise self.failure
        self.given += 1
        runs = [run for run in request.run_ids if run < 100]
        ticket = ReadTicket(body=b"%d" % self.given)
        return pb.GetReadTicketResponse(ticket=ticket, run_ids=runs, valid_seconds=60)


def request(number: int = 1) -> logs_pb2.ReadLogRequest:
    return logs_pb2.ReadLogRequest(run_id=number)


async def test_a_ticket_is_used_again_until_it_is_renewed() -> None:
    coordinator, clock = Coordinator(), FakeClock()
    tickets = ReadTickets(coordinator.fetch, clock)
    asked = request()
    assert tickets.add(asked, [1]) == 60
    assert tickets.add(asked, [1]) == 60 and coordinator.given == 1
    assert tickets.add(request(2), [2]) == 60 and coordinator.given == 2
    await clock.advance(60 - RENEW_SECONDS)
    assert tickets.add(asked, [1]) == RENEW_SECONDS and asked.ticket.body == b"1"
    await clock.advance(0.5)
    assert tickets.add(asked, [1]) == 60 and asked.ticket.body == b"3"


async def test_while_no_coordinator_responds_the_old_ticket_is_used() -> None:
    coordinator, clock = Coordinator(), FakeClock()
    tickets = ReadTickets(coordinator.fetch, clock)
    tickets.add(request(), [1])
    coordinator.failure = TobanError(ErrorCode.UNAVAILABLE, "no coordinator answers")
    await clock.advance(50)
    assert tickets.add(request(), [1]) == 10
    await clock.advance(9)
    with pytest.raises(TobanError, match="no coordinator answers"):
        tickets.add(request(), [1])


async def test_a_refusal_is_not_passed_over() -> None:
    coordinator, clock = Coordinator(), FakeClock()
    tickets = ReadTickets(coordinator.fetch, clock)
    tickets.add(request(), [1])
    await clock.advance(50)
    coordinator.failure = TobanError(ErrorCode.PERMISSION_DENIED, "user bob may not see run 1")
    with pytest.raises(TobanError, match="may not see run 1"):
        tickets.add(request(), [1])


def test_a_search_keeps_the_runs_that_the_person_may_see() -> None:
    tickets = ReadTickets(Coordinator().fetch, FakeClock())
    wanted = logs_pb2.SearchLogRequest(run_ids=[300, 7, 200, 5])
    tickets.add(wanted, wanted.run_ids)
    assert list(wanted.run_ids) == [7, 5]


def test_every_call_carries_a_ticket(cluster: Any, toban: Any) -> None:
    cluster.reader.runs = [pb.Run(id=12, token=7, state="SUCCEEDED")]
    cluster.logs.first = [logs_pb2.LogLine(seq=1, text=b"one", stream=logs_pb2.LOG_STREAM_STDOUT)]
    assert toban("run", "logs", "12", "--verbose")[:2] == (0, "one\n")
    assert cluster.reader.ticket_requests == [[12]], "one ticket for Describe and Read"
    assert [item.ticket.body for item in cluster.logs.requests] == [b"ticket 1"]
    cluster.reader.ticket_failure = TobanError(ErrorCode.PERMISSION_DENIED, "user bob may not see run 12")
    code, out, err = toban("run", "logs", "12")
    assert (code, out) == (77, "") and "user bob may not see run 12" in err


@pytest.mark.parametrize("argv", [("--attempt", "1"), ()])
def test_following_goes_on_when_a_ticket_ends(cluster: Any, toban: Any, argv: tuple[str, ...]) -> None:
    """The fake log-archiver keeps the stream open; it ends with its ticket, and is opened again after the last line."""
    cluster.reader.ticket_seconds = 1
    cluster.reader.runs = [pb.Run(id=12, token=7, state="SUCCEEDED", attempts=[pb.Attempt(token=7, attempt=1)])]
    cluster.logs.first = [logs_pb2.LogLine(seq=1, text=b"one", stream=logs_pb2.LOG_STREAM_STDOUT)]
    cluster.logs.ends_at_request = 3
    code, out, err = toban("run", "logs", "12", "-f", *argv)
    assert (code, out) == (0, "one\n"), err
    assert "cannot be shown" not in err
    followed = [item for item in cluster.logs.requests if item.follow]
    assert [(item.after.token, item.after.seq) for item in followed[:3]] == [(0, 0), (7, 1), (7, 1)]
    assert len({item.ticket.body for item in followed[:3]}) == 3


@pytest.mark.parametrize("argv", [("--attempt", "1"), ()])
def test_what_a_filter_left_out_is_not_read_again_with_the_next_ticket(
    cluster: Any, toban: Any, argv: tuple[str, ...]
) -> None:
    cluster.reader.ticket_seconds = 1
    cluster.reader.runs = [pb.Run(id=12, token=7, state="SUCCEEDED", attempts=[pb.Attempt(token=7, attempt=1)])]
    cluster.logs.read_to, cluster.logs.ends_at_request = 900, 2
    code, out, err = toban("run", "logs", "12", "-f", "--grep", "rare", "--tail", "5", *argv)
    assert (code, out) == (0, ""), err
    first, second = [item for item in cluster.logs.requests if item.follow][:2]
    assert (first.tail, first.HasField("after")) == (5, False)
    assert (second.tail, second.after.token, second.after.seq) == (0, 7, 900)


@pytest.mark.parametrize("argv", [("--attempt", "1"), ()])
def test_a_coordinator_that_gives_no_ticket_in_time_is_named_while_following(
    cluster: Any, toban: Any, argv: tuple[str, ...]
) -> None:
    cluster.reader.ticket_failures = [TobanError(ErrorCode.DEADLINE_EXCEEDED, "GetReadTicket took longer than 10 s")]
    cluster.reader.runs = [pb.Run(id=12, token=7, state="SUCCEEDED", attempts=[pb.Attempt(token=7, attempt=1)])]
    cluster.logs.first = [logs_pb2.LogLine(seq=1, text=b"one", stream=logs_pb2.LOG_STREAM_STDOUT)]
    cluster.logs.at_end = True
    code, out, err = toban("run", "logs", "12", "-f", *argv)
    assert "GetReadTicket took longer than 10 s" in err
    assert (code, out) == ((75, "") if argv else (0, "one\n"))
