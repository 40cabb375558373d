"""Calls from the client's side: always with a deadline, errors as TobanError, and with the trace that the caller is in.

`method` is a method of a generated stub, such as `WorkerServiceStub(channel).Ping`. `timeout` is in seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import nullcontext
from typing import TypeVar

import grpc
import grpc.aio

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import tracing
from toban_transport.errors import from_rpc_error

Q = TypeVar("Q")
R = TypeVar("R")
Metadata = Sequence[tuple[str, str]]


async def unary(
    method: "grpc.aio.UnaryUnaryMultiCallable[Q, R]", request: Q, *, timeout: float, metadata: Metadata = ()
) -> R:
    """One request, one answer. Raises TobanError."""
    if tracing.current() is None:
        return await _unary(method, request, timeout, metadata)
    with tracing.span(_name(method), kind="client"):
        return await _unary(method, request, timeout, (*metadata, *tracing.headers()))


async def _unary(method: "grpc.aio.UnaryUnaryMultiCallable[Q, R]", request: Q, timeout: float, metadata: Metadata) -> R:
    try:
        return await method(request, timeout=timeout, metadata=tuple(metadata))
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
    except asyncio.CancelledError:
        raise _why_cancelled() from None


async def stream(
    method: "grpc.aio.UnaryStreamMultiCallable[Q, R]", request: Q, *, timeout: float, metadata: Metadata = ()
) -> AsyncIterator[R]:
    """One request, answers until the server ends. Leaving the loop early cancels the call. Raises TobanError."""
    call = method(request, timeout=timeout, metadata=(*metadata, *tracing.headers()))
    try:
        async for answer in call:
            yield answer
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
    except asyncio.CancelledError:
        raise _why_cancelled() from None
    finally:
        call.cancel()


async def duplex(
    method: "grpc.aio.StreamStreamMultiCallable[Q, R]",
    requests: AsyncIterator[Q],
    *,
    timeout: float,
    metadata: Metadata = (),
) -> AsyncIterator[R]:
    """Requests out as `requests` gives them, answers in. The end of `requests` half-closes the call. Raises TobanError."""
    call = method(requests, timeout=timeout, metadata=(*metadata, *tracing.headers()))
    try:
        async for answer in call:
            yield answer
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
    except asyncio.CancelledError:
        raise _why_cancelled() from None
    finally:
        call.cancel()


def _why_cancelled() -> BaseException:
    """Only the call was cancelled, since its channel was closed: an error like others. Our task was cancelled: that goes on."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        return asyncio.CancelledError()
    return TobanError(ErrorCode.UNAVAILABLE, "the connection was closed during the call")


def _name(method: object) -> str:
    """The full name of a stub's method, without the slash before it."""
    name = getattr(method, "_method", b"")
    return (name.decode() if isinstance(name, bytes) else str(name)).lstrip("/") or "call"


def unary_sync(
    method: "grpc.UnaryUnaryMultiCallable[Q, R]", request: Q, *, timeout: float, metadata: Metadata = ()
) -> R:
    """As `unary`, blocking, over `open_sync_channel`."""
    with tracing.span(_name(method), kind="client") if tracing.current() else nullcontext():
        try:
            return method(request, timeout=timeout, metadata=(*metadata, *tracing.headers()))
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None


def stream_sync(
    method: "grpc.UnaryStreamMultiCallable[Q, R]", request: Q, *, timeout: float, metadata: Metadata = ()
) -> Iterator[R]:
    """As `stream`, blocking, over `open_sync_channel`."""
    call = method(request, timeout=timeout, metadata=(*metadata, *tracing.headers()))
    try:
        yield from call
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    finally:
        call.cancel()  # type: ignore[no-untyped-call]
