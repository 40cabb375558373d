import contextvars
import io
import json
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from toban_domain.traceparent import TraceContext
from toban_observability import tracing
from toban_observability.context import TRACE, bind_log_context
from toban_observability.logs import get_logger, setup_logging
from toban_observability.tracing_otlp import OtlpSpan

HERE = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


def test_off_it_costs_nothing_and_loads_nothing() -> None:
    script = (
        "import sys; from toban_observability import tracing; tracing.setup('x', '1'); "
        "assert not tracing.enabled() and tracing.begin('a') is None and tracing.headers() == (); "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    done = subprocess.run([sys.executable, "-c", script], env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_what_leaves_it_off(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tracing.setup("x", "1")
    assert not tracing.enabled()


def log_inside() -> None:
    bind_log_context(run_id=7, epoch=3)
    get_logger().info("inside")


def test_the_trace_is_propagated_to_callees_and_log_lines() -> None:
    out = io.StringIO()
    setup_logging("x", "json", stream=out)
    before = TRACE.set(None)
    try:
        tracing.adopt("nonsense")
        assert tracing.headers() == ()
        tracing.adopt(HERE.header)
        assert tracing.headers() == (("traceparent", HERE.header),)
        contextvars.copy_context().run(log_inside)
    finally:
        TRACE.reset(before)
    get_logger().info("outside")
    inside, outside = map(json.loads, out.getvalue().splitlines())
    assert (inside["run_id"], inside["epoch"]) == (7, 3)
    assert (inside["trace_id"], inside["span_id"]) == (HERE.trace_id, HERE.span_id)
    assert not {"run_id", "epoch", "trace_id", "span_id"} & outside.keys()


def test_without_a_sink_a_span_is_its_block() -> None:
    with tracing.span("a") as opened:
        assert opened is None and tracing.current() is None


def test_outside_of_a_trace_nothing_is_carried() -> None:
    before = TRACE.set(HERE)
    try:
        with tracing.outside():
            assert tracing.headers() == ()
        assert tracing.headers() == (("traceparent", HERE.header),)
    finally:
        TRACE.reset(before)


def test_a_secret_in_an_error_does_not_leave_with_its_span() -> None:
    span = TracerProvider().get_tracer("tests").start_span("a")
    OtlpSpan(span).end(error="no answer of postgresql://toban:hunter2@db/toban, password=hunter2")
    assert isinstance(span, ReadableSpan)
    assert span.status.description == "no answer of postgresql://***@db/toban, password=***"
