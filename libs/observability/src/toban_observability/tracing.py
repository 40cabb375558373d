"""Tracing with OpenTelemetry. Disabled unless the standard OTEL_* variables set an endpoint; the SDK is then not imported.

The current span of the running task is a context variable: `headers` propagates it to callees, and log lines contain it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from toban_domain.traceparent import TraceContext, parse
from toban_observability.context import TRACE

TRACEPARENT = "traceparent"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

Attributes = Mapping[str, str | int | float | bool]


class OpenSpan(Protocol):
    """A started span. Call `end` exactly once."""

    @property
    def context(self) -> TraceContext:
        """The context of this span: the parent of nested spans."""
        ...

    def end(self, attributes: Attributes | None = None, error: str = "") -> None:
        """Ends the span; a non-empty `error` marks it as failed with this message."""
        ...


class Sink(Protocol):
    """Receives spans and exports them."""

    def begin(
        self,
        name: str,
        *,
        kind: str,
        parent: TraceContext | None,
        own: TraceContext | None,
        attributes: Attributes,
    ) -> OpenSpan:
        """Starts a span."""
        ...

    def close(self) -> None:
        """Exports the remaining spans."""
        ...


_sink: Sink | None = None


def setup(service: str, version: str) -> None:
    """Exports spans of this process to the endpoint set in the environment, if any. Call it once, after forks."""
    global _sink
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    if not endpoint or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return
    from toban_observability.logs import get_logger  # A process that only propagates traces needs no logging.

    log = get_logger(__name__)
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        log.warning(
            "tracing is disabled: only http/protobuf is supported; set OTEL_EXPORTER_OTLP_ENDPOINT to port 4318",
            protocol=protocol,
        )
        return
    try:
        from toban_observability.tracing_otlp import OtlpSink
    except ImportError as error:
        log.warning("tracing is disabled: install toban-observability[tracing]", error=str(error))
        return
    _sink = OtlpSink(service, version)
    log.info("tracing is enabled", endpoint=endpoint)


def shutdown() -> None:
    """Exports the remaining spans and disables tracing."""
    global _sink
    if _sink is not None:
        _sink.close()
        _sink = None


def enabled() -> bool:
    """Whether spans of this process are exported."""
    return _sink is not None


def current() -> TraceContext | None:
    """The current span context of the running task; None outside of a trace."""
    return TRACE.get()


def headers() -> tuple[tuple[str, str], ...]:
    """Metadata that propagates the trace to a callee; empty outside of a trace."""
    here = TRACE.get()
    return () if here is None else ((TRACEPARENT, here.header),)


def adopt(header: str) -> None:
    """Continues the caller's trace in the running task; an invalid `traceparent` is ignored."""
    context = parse(header)
    if context is not None:
        TRACE.set(context)


@contextmanager
def outside() -> Iterator[None]:
    """Suppresses the trace within the block: a watch is cancelled by its client, which would appear as a failed span."""
    before = TRACE.set(None)
    try:
        yield
    finally:
        TRACE.reset(before)


def begin(
    name: str,
    *,
    kind: str = "internal",
    parent: TraceContext | None = None,
    own: TraceContext | None = None,
    attributes: Attributes | None = None,
) -> OpenSpan | None:
    """Starts a span that the caller ends; None while tracing is disabled. Without `parent` it starts a trace, with the ids `own` if given.

    `kind` is internal, server or client. A span that is never ended is not exported.
    """
    if _sink is None:
        return None
    return _sink.begin(name, kind=kind, parent=parent, own=own, attributes=attributes or {})


@contextmanager
def span(
    name: str, *, kind: str = "internal", parent: TraceContext | None = None, attributes: Attributes | None = None
) -> Iterator[OpenSpan | None]:
    """A span around the block, nested in `parent` or else in the current span. An exception marks it as failed."""
    opened = begin(name, kind=kind, parent=parent or TRACE.get(), attributes=attributes)
    if opened is None:
        yield None
        return
    before = TRACE.set(opened.context)
    error = ""
    try:
        yield opened
    except BaseException as caught:
        error = str(caught) or type(caught).__name__
        raise
    finally:
        TRACE.reset(before)
        opened.end(error=error)
