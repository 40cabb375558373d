"""Wraps every handler of a servicer: authorisation, decoding, deadline, metrics, and errors into statuses.

It is done inside the handler and not in an interceptor because only there gRPC shows the peer's certificate. Requests arrive here as bytes, so
that nothing of a caller who may not make the call is parsed.
"""

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.traceparent import parse
from toban_observability import metrics, tracing
from toban_observability.context import Caller
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource
from toban_transport import authz
from toban_transport.call_context import (
    admit,
    certificate_seconds,
    metadata,
    peer_service,
    peer_spiffe_ids,
    set_actor,
    set_caller,
)
from toban_transport.errors import to_status
from toban_transport.person_rules import PERSON_RULES

_log = get_logger(__name__)
_seconds = metrics.histogram("toban_rpc_seconds", "Duration of served RPCs.", ("method",))
_calls = metrics.counter("toban_rpc_total", "Served RPCs by result: OK or an error code.", ("method", "code"))
_open = metrics.gauge("toban_rpc_open", "RPCs in progress on this server.", ("method",))

# A stream ends this long after its person lost the right to it, seconds, plus what the check itself takes.
RECHECK_SECONDS = 1.0
# A stream without a person ends this long after its certificate came onto the deny-list. Longer, since services keep many.
DENIED_SECONDS = 10.0


class Admission(Protocol):
    """What a person may do with one call."""

    @property
    def actor(self) -> str:
        """The person, for the audit."""

    async def recheck(self) -> None:
        """Raises UNAUTHENTICATED or PERMISSION_DENIED when the person may do this no more."""

    async def visible(self, answer: Any) -> Any:
        """The answer without what the person may not see."""


class PersonCheck(Protocol):
    """Decides about the person of a call. `about` parses the request: it is called after everything that can be decided without it."""

    async def admit(
        self, method: str, *, caller: Caller, about: Callable[[], Any], given: Mapping[str, str]
    ) -> Admission | None:
        """None: no person makes this call, and its certificate allows it. `given` is the call's metadata.

        Raises UNAUTHENTICATED or PERMISSION_DENIED, and what `about` raises.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What all calls of one server are measured against. `shared`: certificates that services have in common are good here.

    `refusals` keeps a caller that is refused again and again, as one with a wrong certificate is, from filling the log.
    `people` decides about persons where there are accounts. `denied` has the serial numbers of certificates that are refused.
    """

    trust_domain: str
    rules: authz.Rules
    clock: Clock
    ids: IdSource
    shared: bool = False
    refusals: LogThrottle = field(default_factory=LogThrottle)
    people: PersonCheck | None = None
    denied: Callable[[], Collection[int]] = frozenset


class UndecodableRequest(TobanError):
    """INVALID_ARGUMENT: the bytes of a request are not a message of its type."""


def wrap(method: str, handler: "grpc.RpcMethodHandler[Any, Any]", policy: Policy) -> "grpc.RpcMethodHandler[Any, Any]":
    """The same handler behind the policy. Raises CONFIG_INVALID for a shape that no service of ours has (stream in, one answer out)."""
    # Without a deserializer gRPC gives the handler the bytes.
    coders = {"request_deserializer": None, "response_serializer": handler.response_serializer}
    guard = _Guard(method, policy, handler)
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(guard.answering(handler.unary_unary), **coders)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(guard.streaming_to(handler.unary_stream), **coders)
    if handler.stream_stream:
        return grpc.stream_stream_rpc_method_handler(guard.streaming_to(handler.stream_stream), **coders)
    raise TobanError(
        ErrorCode.CONFIG_INVALID, f"{method}: this shape of call is not supported; make it a stream of answers"
    )


class _Guard:
    def __init__(self, method: str, policy: Policy, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        self._method = method
        self._policy = policy
        self._parse: Callable[[bytes], Any] = handler.request_deserializer or bytes
        self._many = handler.request_streaming
        self._streaming = handler.request_streaming or handler.response_streaming
        rule = PERSON_RULES.get(method)
        # A server that knows no accounts changes nothing for the site: it could not tell who asks.
        self._only_command = policy.people is None and rule is not None and rule.action is not Action.VIEW
        self._seconds = _seconds.labels(method)
        self._open = _open.labels(method)

    def answering(self, servicer: Callable[..., Any]) -> Callable[..., Any]:
        """A handler with one answer."""

        async def work(received: Any, context: Any) -> Any:
            request = self._requested(received)
            admission = await self._admit_person(request, context)
            answer = await servicer(request(), context)
            return answer if admission is None else await admission.visible(answer)

        async def handle(received: Any, context: Any) -> Any:
            return await self._run(context, lambda: work(received, context))

        return handle

    def streaming_to(self, servicer: Callable[..., Any]) -> Callable[..., Any]:
        """A handler with a stream of answers: the servicer yields them, or writes them to the context itself."""

        async def produce(request: Callable[[], Any], context: Any) -> None:
            answers = servicer(request(), context)
            if inspect.isawaitable(answers):
                await answers
            else:
                await _write_all(answers, context)

        async def work(received: Any, context: Any) -> None:
            request = self._requested(received)
            admission = await self._admit_person(request, context)

            async def recheck() -> None:
                certificate_seconds(context, self._policy.clock.wall(), self._policy.denied())
                if admission is not None:
                    await admission.recheck()

            every = DENIED_SECONDS if admission is None else RECHECK_SECONDS
            await _while_allowed(recheck, every, produce(request, context))

        async def handle(received: Any, context: Any) -> None:
            await self._run(context, lambda: work(received, context))

        return handle

    def _requested(self, received: Any) -> Callable[[], Any]:
        """Parses the request, or each of a stream as it comes, when it is asked for; once. The call raises UndecodableRequest."""
        if self._many:
            return lambda: self._decode_each(received)
        return cache(lambda: self._decode(received))

    def _decode(self, raw: bytes) -> Any:
        try:
            return self._parse(raw)
        except DecodeError:
            message = f"the {len(raw)} bytes sent to {self._method} are no request of its type; send what the proto of this version defines"
            raise UndecodableRequest(ErrorCode.INVALID_ARGUMENT, message) from None

    async def _decode_each(self, received: AsyncIterable[bytes]) -> AsyncIterator[Any]:
        async for raw in received:
            yield self._decode(raw)

    async def _admit_person(self, request: Callable[[], Any], context: Any) -> Admission | None:
        people = self._policy.people
        if people is None:
            if self._only_command and peer_service(context) != authz.ADMIN_CLI:
                message = f"{self._method} is for people, and this server has no accounts"
                raise TobanError(ErrorCode.UNAUTHENTICATED, message)
            return None
        given = metadata(context)
        caller = set_caller(context, given)
        admission = await people.admit(self._method, caller=caller, about=request, given=given)
        if admission is not None:
            set_actor(admission.actor)
        return admission

    async def _run(self, context: Any, work: Callable[[], Any]) -> Any:
        if not tracing.enabled() or (parent := parse(metadata(context).get(tracing.TRACEPARENT, ""))) is None:
            return await self._measured(context, work)
        # Only calls of a trace have a span: heartbeats and watches would drown the others.
        with tracing.span(self._method.lstrip("/"), kind="server", parent=parent):
            return await self._measured(context, work)

    async def _measured(self, context: Any, work: Callable[[], Any]) -> Any:
        started = self._policy.clock.monotonic()
        code = "OK"
        self._open.inc()
        try:
            return await self._admitted(context, work)
        except grpc.aio.AbortError:
            code = "ABORTED_BY_HANDLER"
            raise
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except Exception as error:
            refusal = self._named(error)
            code = refusal.code.value
            await self._abort(context, refusal)
        finally:
            self._open.dec()
            self._seconds.observe(max(0.0, self._policy.clock.monotonic() - started))
            _calls.labels(self._method, code).inc()

    async def _admitted(self, context: Any, work: Callable[[], Any]) -> Any:
        policy = self._policy
        bound = admit(
            self._method,
            context,
            trust_domain=policy.trust_domain,
            rules=policy.rules,
            shared=policy.shared,
            streaming=self._streaming,
            now=policy.clock.wall(),
            denied=policy.denied(),
        )
        try:
            async with asyncio.timeout(bound) as limit:
                return await work()
        except TimeoutError:
            if not limit.expired():
                raise
            certificate_seconds(context, policy.clock.wall())
            raise TobanError(
                ErrorCode.DEADLINE_EXCEEDED, f"{self._method} may last {bound:g} s; call it again"
            ) from None

    def _named(self, error: Exception) -> TobanError:
        """The error that the caller may see: ours as it is, a method not written yet, and anything else behind an error id."""
        if isinstance(error, TobanError):
            return error
        if isinstance(error, NotImplementedError):
            return TobanError(ErrorCode.UNIMPLEMENTED, f"{self._method} is not served by this version")
        error_id = self._policy.ids.token_hex(6)
        _log.error("call failed", method=self._method, error_id=error_id, exc_info=error)
        return TobanError(
            ErrorCode.INTERNAL,
            f"internal error {error_id} in {self._method}; the server's log has it under this id",
            detail={"error_id": error_id},
        )

    async def _abort(self, context: Any, error: TobanError) -> NoReturn:
        if isinstance(error, UndecodableRequest):
            self._note_refused(peer_spiffe_ids(context), "its request cannot be parsed")
        elif error.code in (ErrorCode.PERMISSION_DENIED, ErrorCode.UNAUTHENTICATED):
            self._note_refused(peer_spiffe_ids(context), error.message)
        status, details, trailing = to_status(error)
        await context.abort(status, details, trailing)
        raise AssertionError("abort raises")

    def _note_refused(self, ids: tuple[str, ...], why: str) -> None:
        suppressed = self._policy.refusals.admit((ids, why), self._policy.clock.monotonic())
        if suppressed is not None:
            _log.warning("call refused", method=self._method, why=why, ids=ids, suppressed=suppressed)


async def _write_all(answers: AsyncIterator[Any], context: Any) -> None:
    async for answer in answers:
        await context.write(answer)


async def _while_allowed(recheck: Callable[[], Awaitable[None]], every: float, work: Awaitable[None]) -> None:
    """Ends a stream when its person or its certificate may not go on; asks each `every` seconds."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=every))[0]:
            await recheck()
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
