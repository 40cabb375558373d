"""Traces by OpenTelemetry. Off unless the standard OTEL_* variables say where spans go; while it is off, nothing of the SDK is loaded.

The place in a trace that the running task is at is a context variable: `headers` carries it to others, log lines show it.
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
    """A span that has begun. `end` it once."""

    @property
    def context(self) -> TraceContext:
        """Its own place, the parent of what happens below it."""
        ...

    def end(self, attributes: Attributes | None = None, error: str = "") -> None:
        """It is over now; an `error` says that it failed, and why."""
        ...


class Sink(Protocol):
    """Where spans go."""

    def begin(
        self,
        name: str,
        *,
        kind: str,
        parent: TraceContext | None,
        own: TraceContext | None,
        attributes: Attributes,
    ) -> OpenSpan:
        """Begin one."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


_sink: Sink | None = None


def setup(service: str, version: str) -> None:
    """Send spans of this process where the environment says; nothing happens when it says nothing. Call it once, after forks."""
    global _sink
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    if not endpoint or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    if os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return
    from toban_observability.logs import get_logger  # A process that only passes traces on loads no logging.

    log = get_logger(__name__)
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        log.warning(
            "no traces: only http/protobuf is spoken; point OTEL_EXPORTER_OTLP_ENDPOINT at port 4318", protocol=protocol
        )
        return
    try:
        from toban_observability.tracing_otlp import OtlpSink
    except ImportError as error:
        log.warning("no traces: install toban-observability[tracing]", error=str(error))
        return
    _sink = OtlpSink(service, version)
    log.info("traces", endpoint=endpoint)


def shutdown() -> None:
    """Send what is left, and be off again."""
    global _sink
    if _sink is not None:
        _sink.close()
        _sink = None


def enabled() -> bool:
    """Whether spans of this process go anywhere."""
    return _sink is not None


def current() -> TraceContext | None:
    """Where the running task is."""
    return TRACE.get()


def headers() -> tuple[tuple[str, str], ...]:
    """Metadata that carries the trace to whom is called; nothing outside of a trace."""
    here = TRACE.get()
    return () if here is None else ((TRACEPARENT, here.header),)


def adopt(header: str) -> None:
    """The running task continues the trace of its caller; an invalid `traceparent` changes nothing."""
    context = parse(header)
    if context is not None:
        TRACE.set(context)


@contextmanager
def outside() -> Iterator[None]:
    """Calls of the block are in no trace: a watch is ended by its client, which would look like a failure there."""
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
    """A span that its caller ends; None while tracing is off. Without `parent` it begins a trace, with the ids `own` when they are given.

    `kind` is internal, server or client. One that is never ended is never sent.
    """
    if _sink is None:
        return None
    return _sink.begin(name, kind=kind, parent=parent, own=own, attributes=attributes or {})


@contextmanager
def span(
    name: str, *, kind: str = "internal", parent: TraceContext | None = None, attributes: Attributes | None = None
) -> Iterator[OpenSpan | None]:
    """A span around the block, which is the place of everything in it. Below `parent`, else below the present place. An exception fails it."""
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
