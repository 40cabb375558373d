"""Who may read output: the bearer of a read ticket for the runs of the request. Log-archivers know no accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_proto.v1.common_pb2 import ReadTicketBody
from toban_proto.v1.logs_pb2 import SearchLogRequest
from toban_runtime.clock import Clock
from toban_transport.person_rules import BY_TICKET
from toban_transport.read_ticket import ReadTicketVerifier, check_time
from toban_transport.server_middleware import Admission


class TicketAdmission:
    """A call that its ticket allows. With `follow`, no longer than the ticket lasts; other calls read what is stored, and end by themselves."""

    def __init__(self, *, body: ReadTicketBody, follow: bool, clock: Clock) -> None:
        self._body = body
        self._follow = follow
        self._clock = clock

    @property
    def actor(self) -> str:
        """Whom the ticket was signed for."""
        return self._body.actor

    async def recheck(self) -> None:
        """Raises TICKET_EXPIRED."""
        if self._follow:
            check_time(self._body, self._clock.wall())

    async def visible(self, answer: Any) -> Any:
        """Everything: the ticket names the runs."""
        return answer


class ReadTicketCheck:
    """The PersonCheck of a log-archiver."""

    def __init__(self, *, verifier: ReadTicketVerifier, clock: Clock) -> None:
        self._verifier = verifier
        self._clock = clock

    async def admit(
        self,
        method: str,
        *,
        caller: Caller,
        about: Callable[[], Any],
        given: Mapping[str, str],  # noqa: ARG002
    ) -> Admission | None:
        """None for methods that no ticket is for. Raises TICKET_MISSING, TICKET_INVALID, TICKET_EXPIRED, PERMISSION_DENIED."""
        if method not in BY_TICKET:
            return None
        request = about()
        if not request.HasField("ticket"):
            message = f"{caller.service} reads output without a read ticket; upgrade it to this release (coordinators give tickets by GetReadTicket)"
            raise TobanError(ErrorCode.TICKET_MISSING, message)
        run_ids = request.run_ids if isinstance(request, SearchLogRequest) else [request.run_id]
        body = self._verifier.verify(request.ticket, run_ids=run_ids, now=self._clock.wall())
        return TicketAdmission(body=body, follow=getattr(request, "follow", False), clock=self._clock)
