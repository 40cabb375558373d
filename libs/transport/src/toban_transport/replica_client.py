"""The replicas of one service from blocking code: each address in turn until one answers. Safe for threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import Clock, SystemClock
from toban_transport.channel import DRAIN_SECONDS, open_sync_channel
from toban_transport.client_calls import Metadata, stream_sync, unary_sync
from toban_transport.tls import TlsFiles, Triple

R = TypeVar("R")
Stub = Callable[[grpc.Channel], Any]
"""Gives the method of a generated stub: `lambda channel: JobReaderStub(channel).GetRun`."""


class Fleet:
    """Any replica answers every call. Channels are made at the first request, and remade when our certificate files change.

    `hint` ends the error with what to do when no replica answers.
    """

    def __init__(
        self,
        *,
        service: str,
        addresses: Sequence[str],
        tls: TlsFiles,
        trust_domain: str,
        hint: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.service = service
        self.addresses = tuple(addresses)
        """host:port in the order given."""
        self._order = self.addresses
        self._tls = tls
        self._trust_domain = trust_domain
        self._hint = hint
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._channels: dict[str, tuple[Triple, grpc.Channel]] = {}
        self._retired: deque[tuple[float, grpc.Channel]] = deque()
        # Beside those: channels that have not answered yet.
        self._tried: set[grpc.Channel] = set()
        self._closed = False

    def call(
        self, stub: Stub, request: Any, *, timeout: float, attempt_seconds: float = 0.0, metadata: Metadata = ()
    ) -> Any:
        """The answer of the first replica that is there, within `timeout` seconds in all.

        Only a replica that is not reached is left for the next one. With `attempt_seconds`, for calls that change nothing, a replica that stays
        silent that long is left too. Raises its TobanError, or UNAVAILABLE that names all addresses.
        """
        ends_at = self._clock.monotonic() + timeout

        def attempt(method: Any) -> Any:
            left = ends_at - self._clock.monotonic()
            if left <= 0:
                raise TobanError(ErrorCode.DEADLINE_EXCEEDED, f"no {self.service} answered within {timeout:g} s")
            seconds = min(left, attempt_seconds or left)
            return unary_sync(method, request, timeout=seconds, metadata=metadata)

        return self._first(stub, attempt, patient=not attempt_seconds)

    def stream(
        self, stub: Stub, request: Any, *, timeout: float, leave_silent: bool = False, metadata: Metadata = ()
    ) -> Iterator[Any]:
        """Answers of the first replica that is there, until it ends the stream or `timeout` seconds have passed (DEADLINE_EXCEEDED).

        With `leave_silent`, for streams that begin at once, the next replica has its own `timeout` after one that did not begin.
        """

        def opened(method: Any) -> tuple[Any, Iterator[Any]]:
            answers = stream_sync(method, request, timeout=timeout, metadata=metadata)
            return next(answers, None), answers

        first, rest = self._first(stub, opened, patient=not leave_silent)
        if first is not None:
            yield first
            yield from rest

    def serving(self, address: str, *, timeout: float) -> bool:
        """Whether the replica at `address` says by grpc.health.v1 that it serves."""
        request = health_pb2.HealthCheckRequest()
        try:
            method = self._method(address, lambda channel: health_pb2_grpc.HealthStub(channel).Check)
            answer = unary_sync(method, request, timeout=timeout)
        except TobanError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def close(self) -> None:
        """Ends the connections for good; calls and streams under way end with them."""
        with self._lock:
            self._closed = True
            channels = [*(channel for _, channel in (*self._channels.values(), *self._retired)), *self._tried]
            self._channels.clear()
            self._retired.clear()
            self._tried.clear()
        for channel in channels:
            channel.close()

    def _first(self, stub: Stub, attempt: Callable[[Any], R], *, patient: bool = True) -> R:
        # A deadline may have been met after a write: only for calls that change nothing is another replica asked.
        leave = {ErrorCode.UNAVAILABLE} if patient else {ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED}
        failure: TobanError | None = None
        away: list[str] = []
        for address in self._order:
            old = address in self._channels
            try:
                return self._good(address, attempt(self._method(address, stub)))
            except TobanError as error:
                if error.code not in leave:
                    raise
                failure = error
                if old and error.code is ErrorCode.UNAVAILABLE:
                    away.append(address)
        # A channel that failed a while ago waits before it connects again, and says nothing of a replica that is back meanwhile.
        for address in away:
            channel, method = self._try(address, stub)
            try:
                answer = attempt(method)
            except TobanError as error:
                self._drop(channel)
                if error.code not in leave:
                    raise
                continue
            self._replace(address, channel)
            return self._good(address, answer)
        raise self._unreachable(failure)

    def _method(self, address: str, stub: Stub) -> Any:
        """The method at the channel of an address. Under the lock: gRPC crashes when a stub is made for a channel that is closed meanwhile."""
        with self._lock:
            return stub(self._channel(address))

    def _try(self, address: str, stub: Stub) -> tuple[grpc.Channel, Any]:
        """The same at a channel of its own, which `close` ends, too: the first may have failed because another thread has closed it."""
        with self._lock:
            self._raise_closed()
            channel = open_sync_channel(address, self.service, self._tls, self._trust_domain)
            self._tried.add(channel)
            return channel, stub(channel)

    def _drop(self, channel: grpc.Channel) -> None:
        with self._lock:
            self._tried.discard(channel)
        channel.close()

    def _raise_closed(self) -> None:
        if self._closed:
            raise TobanError(ErrorCode.UNAVAILABLE, f"the connections to {self.service} are closed")

    def _good(self, address: str, answer: R) -> R:
        """The one that answered is asked first from now on."""
        self._order = (address, *(other for other in self._order if other != address))
        return answer

    def _replace(self, address: str, channel: grpc.Channel) -> None:
        with self._lock:
            self._raise_closed()
            self._tried.discard(channel)
            held = self._channels.get(address)
            if held is not None:
                self._retired.append((self._clock.monotonic() + DRAIN_SECONDS, held[1]))
            self._channels[address] = (self._tls.current(), channel)

    def _unreachable(self, failure: TobanError | None) -> TobanError:
        tried = ", ".join(self._order) or "no address is known"
        # A refused connection is in the message already; an answer of a server or about its certificate is not.
        said = failure is not None and not failure.message.startswith("cannot reach the service")
        why = f" ({failure.message})" if failure is not None and said else ""
        hint = f". {self._hint}" if self._hint else ""
        return TobanError(
            ErrorCode.UNAVAILABLE,
            f"no {self.service} answers: {tried}{why}{hint}",
            detail={"service": self.service, "addresses": list(self._order)},
        )

    def _channel(self, address: str) -> grpc.Channel:
        """The channel of an address, made or remade when needed. Call it with the lock."""
        triple = self._tls.current()
        now = self._clock.monotonic()
        self._raise_closed()
        while self._retired and self._retired[0][0] <= now:
            self._retired.popleft()[1].close()
        held = self._channels.get(address)
        if held is not None and held[0] is triple:
            return held[1]
        if held is not None:
            # Calls under way go on with the old certificate for a while.
            self._retired.append((now + DRAIN_SECONDS, held[1]))
        channel = open_sync_channel(address, self.service, self._tls, self._trust_domain)
        self._channels[address] = (triple, channel)
        return channel
