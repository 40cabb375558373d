"""Calls to the cluster over mTLS as admin-cli: each address in turn until one answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from toban_cli.settings import Settings, read_settings
from toban_domain.errors import ErrorCode, TobanError

CALL_SECONDS = 10.0
# Servers end streams after an hour; callers open them again.
STREAM_SECONDS = 3600.0
R = TypeVar("R")

# What another address may do better. A deadline may have been met after the write, so it is not among them.
_TRY_NEXT = frozenset({ErrorCode.UNAVAILABLE})


class Fleet:
    """The replicas of one service: any of them answers every call."""

    def __init__(self, *, service: str, addresses: tuple[str, ...], settings: Settings) -> None:
        self.service = service
        self._addresses = addresses
        self._settings = settings
        self._tls: Any = None
        self._channels: dict[str, Any] = {}
        self._closed = False

    def call(self, stub: Callable[[Any], Any], request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """The answer of the first replica that is there; raises its TobanError, or UNAVAILABLE that names them all."""
        from toban_transport.call import unary_sync

        return self._first(lambda channel: unary_sync(stub(channel), request, timeout=timeout))

    def stream(self, stub: Callable[[Any], Any], request: Any) -> Iterator[Any]:
        """Answers of the first replica that is there, until it ends the stream."""
        from toban_transport.call import stream_sync

        def opened(channel: Any) -> tuple[Any, Iterator[Any]]:
            answers = stream_sync(stub(channel), request, timeout=STREAM_SECONDS)
            return next(answers, None), answers

        first, rest = self._first(opened)
        if first is not None:
            yield first
            yield from rest

    def close(self) -> None:
        """Ends the connections for good; streams under way end with them."""
        self._closed = True
        for channel in tuple(self._channels.values()):
            channel.close()

    def _first(self, attempt: Callable[[Any], R]) -> R:
        failure: TobanError | None = None
        for address in () if self._closed else tuple(self._addresses):
            try:
                answer = attempt(self._channel(address))
            except TobanError as error:
                if error.code not in _TRY_NEXT:
                    raise
                failure = error
                continue
            # The one that answered is asked first from now on.
            self._addresses = (address, *(other for other in self._addresses if other != address))
            return answer
        raise self._nobody(failure)

    def _nobody(self, failure: TobanError | None) -> TobanError:
        tried = ", ".join(self._addresses) or "no address is known"
        why = f" ({failure.message})" if failure is not None and "certificate is not" in failure.message else ""
        return TobanError(
            ErrorCode.UNAVAILABLE,
            f"no {self.service} answers: {tried}{why}. See what runs with `make status`, start it with `make up`",
            detail={"service": self.service, "addresses": list(self._addresses)},
        )

    def _channel(self, address: str) -> Any:
        from toban_transport.channel import open_sync_channel
        from toban_transport.tls import TlsFiles

        if address not in self._channels:
            self._tls = self._tls or TlsFiles(self._settings.tls_dir)
            self._channels[address] = open_sync_channel(address, self.service, self._tls, self._settings.trust_domain)
        return self._channels[address]


class Client:
    """The stubs that the commands use. Methods carry the names of proto/toban_proto/v1."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.coordinators = Fleet(service="coordinator", addresses=settings.coordinators, settings=settings)
        self.archivers = self.new_archivers()

    def new_archivers(self) -> Fleet:
        """Connections of their own to the log-archivers, for a thread; its owner closes them."""
        return Fleet(service="log-archiver", addresses=self._settings.log_archivers, settings=self._settings)

    def read(self, method: str, request: Any) -> Any:
        """A call to JobReader."""
        return self.coordinators.call(lambda channel: getattr(_stubs().JobReaderStub(channel), method), request)

    def control(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """A call to JobControl."""
        return self.coordinators.call(
            lambda channel: getattr(_stubs().JobControlStub(channel), method), request, timeout=timeout
        )

    def watch(self, request: Any) -> Iterator[Any]:
        """The run now and at each change of state, until the stream ends."""
        return self.coordinators.stream(lambda channel: _stubs().JobReaderStub(channel).WatchRun, request)

    def log(self, request: Any, fleet: Fleet | None = None) -> Iterator[Any]:
        """Lines of a run."""
        return (fleet or self.archivers).stream(lambda channel: _log_stubs().LogReaderStub(channel).Read, request)

    def describe_log(self, request: Any) -> Any:
        """What is stored of a run's output."""
        return self.archivers.call(lambda channel: _log_stubs().LogReaderStub(channel).Describe, request)

    def close(self) -> None:
        """Ends the connections."""
        self.coordinators.close()
        self.archivers.close()


@contextmanager
def connect() -> Iterator[Client]:
    """A client from the environment; connects when first asked."""
    # Read when gRPC is imported: without it a fork of this process would log warnings.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    client = Client(read_settings(os.environ))
    try:
        yield client
    finally:
        client.close()


def _stubs() -> Any:
    from toban_proto.v1 import coordinator_pb2_grpc

    return coordinator_pb2_grpc


def _log_stubs() -> Any:
    from toban_proto.v1 import logs_pb2_grpc

    return logs_pb2_grpc
