"""Read tickets of this command: fetched from a coordinator for the runs of a request, and used again while they are good."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toban_cli.ports import AWAY
from toban_domain.errors import TobanError

if TYPE_CHECKING:
    from toban_runtime.clock import Clock

# With less than this left another ticket is fetched, seconds: a follower has at least that time before its stream ends.
RENEW_SECONDS = 30.0
# No coordinator may respond for a moment while one leads after another: a ticket that is good this long is used meanwhile, seconds.
SPARE_SECONDS = 2.0
_KEPT = 8


@dataclass(frozen=True, slots=True)
class _Held:
    ticket: Any
    run_ids: Sequence[int]
    ends_at: float


class ReadTickets:
    """`fetch` is the call of GetReadTicket. Safe for threads."""

    def __init__(self, fetch: Callable[[Any], Any], clock: Clock | None = None) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[tuple[int, ...], _Held] = {}

    def add(self, request: Any, run_ids: Sequence[int]) -> float:
        """Puts a ticket for these runs into a request of LogReader, and for how many seconds it is good.

        Of a search only the runs that the person may see remain. Raises PERMISSION_DENIED without any, and what the call raises.
        """
        now = self._now()
        key = tuple(run_ids)
        with self._lock:
            held = self._held.get(key)
        if held is None or held.ends_at - now < RENEW_SECONDS:
            held = self._renewed(key, held, now)
        request.ticket.CopyFrom(held.ticket)
        if len(held.run_ids) < len(key):
            visible = set(held.run_ids)
            request.run_ids[:] = [run for run in key if run in visible]
        return held.ends_at - now

    def _renewed(self, key: tuple[int, ...], held: _Held | None, now: float) -> _Held:
        from toban_proto.v1.coordinator_pb2 import GetReadTicketRequest

        try:
            answer = self._fetch(GetReadTicketRequest(run_ids=key))
        except TobanError as error:
            if held is not None and error.code in AWAY and held.ends_at - now > SPARE_SECONDS:
                return held
            raise
        made = _Held(answer.ticket, list(answer.run_ids), now + answer.valid_seconds)
        with self._lock:
            if len(self._held) >= _KEPT:
                self._held.clear()
            self._held[key] = made
        return made

    def _now(self) -> float:
        if self._clock is None:
            from toban_runtime.clock import SystemClock

            self._clock = SystemClock()
        return self._clock.monotonic()
