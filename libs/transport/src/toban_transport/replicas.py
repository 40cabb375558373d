"""The replicas of one service from asyncio code: each address in turn until one answers. For threads see `replica_client`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, TypeVar

import grpc

from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import Clock
from toban_transport.channel import ChannelPool

S = TypeVar("S")
T = TypeVar("T")
_NO_ANSWER = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


class Replicas(Generic[S]):
    """Calls to any replica of `service`, by the stub class `stub`.

    Order: the leader, the replica that answered last, then learned and configured addresses. One that missed a deadline comes last for
    `avoid_seconds`. An error whose code is in `try_another` (None: every code) moves on to the next address; any other is raised.
    """

    def __init__(
        self,
        *,
        channels: ChannelPool,
        stub: Callable[[grpc.aio.Channel], S],
        service: str,
        addresses: Sequence[str],
        clock: Clock,
        unknown: str,
        try_another: Collection[ErrorCode] | None = None,
        avoid_seconds: float = 0.0,
    ) -> None:
        self._channels = channels
        self._stub = stub
        self._service = service
        self._configured = tuple(addresses)
        self._clock = clock
        self._unknown = unknown
        self._try_another = try_another
        self._avoid_seconds = avoid_seconds
        self._learned: tuple[str, ...] = ()
        # The address of the leader as last learned.
        self.leader = ""
        # The address of the last good answer, "" before the first.
        self.answered_last = ""
        # Address → until when it comes last, monotonic seconds.
        self._silent: dict[str, float] = {}
        self._streams = 0
        # Address → the number of its latest stream.
        self._taken: dict[str, int] = {}

    def learn(self, *, leader: str, addresses: Sequence[str]) -> None:
        """Addresses from an answer; empty ones change nothing."""
        self.leader = leader or self.leader
        self._learned = tuple(addresses) or self._learned

    async def call(
        self, attempt: Callable[[S], Awaitable[T | None]], *, on_error: Callable[[str, TobanError], None] | None = None
    ) -> T:
        """The first good answer of `attempt(stub)`; None counts as UNAVAILABLE: a stream that the replica ended before its first message.

        `on_error` gets each address that failed, with its error. Raises UNAVAILABLE when no address is known, else the last error; one that a
        replica answered goes before "no answer".
        """
        failure = self._no_address()
        for address in self.addresses():
            try:
                answer = await attempt(self.stub(address))
                if answer is None:
                    raise TobanError(
                        ErrorCode.UNAVAILABLE, f"the {self._service} at {address} ended the call without an answer"
                    )
            except TobanError as error:
                if self._try_another is not None and error.code not in self._try_another:
                    raise
                if error.code is ErrorCode.DEADLINE_EXCEEDED:
                    self._silent[address] = self._clock.monotonic() + self._avoid_seconds
                if on_error is not None:
                    on_error(address, error)
                if failure.code in _NO_ANSWER or error.code not in _NO_ANSWER:
                    failure = error
            else:
                self.answered_last = address
                self._silent.pop(address, None)
                return answer
        raise failure

    def next_for_stream(self) -> S:
        """The stub of one replica: of those taken least recently, the first in the order of trial. Raises UNAVAILABLE when no address is known."""
        addresses = self.addresses()
        if not addresses:
            raise self._no_address()
        self._streams += 1
        # Not an index: the order of trial changes between two calls.
        taken = {address: self._taken.get(address, 0) for address in addresses}
        address = min(taken, key=taken.__getitem__)
        self._taken = taken | {address: self._streams}
        return self.stub(address)

    def stub(self, address: str) -> S:
        """The stub of the replica at `address` (host:port)."""
        return self._channels.stub(self._stub, address, self._service)

    def addresses(self) -> list[str]:
        """All known addresses in the order of trial."""
        now = self._clock.monotonic()
        self._silent = {address: until for address, until in self._silent.items() if until > now}
        known = dict.fromkeys((self.leader, self.answered_last, *self._learned, *self._configured))
        # Among silent ones, the one that has been silent for longest comes first.
        return sorted(filter(None, known), key=lambda address: self._silent.get(address, 0.0))

    def _no_address(self) -> TobanError:
        return TobanError(ErrorCode.UNAVAILABLE, self._unknown)
