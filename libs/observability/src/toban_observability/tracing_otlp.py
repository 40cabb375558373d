"""Exports spans with the OpenTelemetry SDK; imported only when tracing is enabled."""

import os
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from toban_domain.traceparent import TraceContext
from toban_observability.masking import mask_text
from toban_observability.tracing import Attributes

EXPORT_SECONDS = 3.0

_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_own: ContextVar[TraceContext | None] = ContextVar("toban_own_ids", default=None)


class _Ids(RandomIdGenerator):
    """Random ids, except for a span whose ids are given."""

    def generate_trace_id(self) -> int:
        own = _own.get()
        return int(own.trace_id, 16) if own else super().generate_trace_id()

    def generate_span_id(self) -> int:
        own = _own.get()
        return int(own.span_id, 16) if own else super().generate_span_id()


class OtlpSpan:
    """A span of the SDK."""

    def __init__(self, span: Span) -> None:
        self._span = span
        own = span.get_span_context()
        self.context = TraceContext(f"{own.trace_id:032x}", f"{own.span_id:016x}", own.trace_flags.sampled)

    def end(self, attributes: Attributes | None = None, error: str = "") -> None:
        """See OpenSpan."""
        if attributes:
            self._span.set_attributes(attributes)
        if error:
            # Spans leave the installation, and the message of a database error contains its address.
            self._span.set_status(Status(StatusCode.ERROR, mask_text(error)))
        self._span.end()


class OtlpSink:
    """Exports in the background, configured by the OTEL_* variables (endpoint, headers, sampler, limits)."""

    def __init__(self, service: str, version: str) -> None:
        names = {"service.version": version}
        if not os.environ.get("OTEL_SERVICE_NAME"):
            names["service.name"] = f"toban-{service}"
        # Usually ended by `close`: at interpreter exit other threads have ended already.
        self._provider = TracerProvider(resource=Resource.create(names), id_generator=_Ids(), shutdown_on_exit=True)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=_timeout())))
        self._tracer = self._provider.get_tracer("toban", version)

    def begin(
        self,
        name: str,
        *,
        kind: str,
        parent: TraceContext | None,
        own: TraceContext | None,
        attributes: Attributes,
    ) -> OtlpSpan:
        """See Sink."""
        ids = _own.set(own)
        try:
            span = self._tracer.start_span(name, context=_above(parent), kind=_KINDS[kind], attributes=attributes)
        finally:
            _own.reset(ids)
        return OtlpSpan(span)

    def close(self) -> None:
        """See Sink."""
        self._provider.shutdown()


def _timeout() -> float | None:
    """Timeout of an export in seconds: an unreachable collector must not delay the exit of a process."""
    given = any(os.environ.get(name) for name in ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"))
    return None if given else EXPORT_SECONDS


def _above(parent: TraceContext | None) -> Context:
    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    place = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(place), Context())
