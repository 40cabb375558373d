"""An in-process receiver of OTLP traces over HTTP, in place of an OpenTelemetry collector."""

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One span as it arrived; ids are lower-case hexadecimal, `parent` is empty for the first span of a trace."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    kind: int
    failed: bool
    attributes: Mapping[str, Any]


class Receiver:
    """Collects received spans."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._spans: list[Seen] = []

    @property
    def spans(self) -> list[Seen]:
        """The received spans in order of arrival."""
        with self._lock:
            return list(self._spans)

    def of_trace(self, trace: str) -> list[Seen]:
        """The spans of one trace."""
        return [span for span in self.spans if span.trace == trace]

    def take(self, body: bytes) -> None:
        """Adds the spans of one export request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._lock:
            for resource in request.resource_spans:
                service = _attributes(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self._spans += [_seen(service, span) for span in scope.spans]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port; `url` is the value of OTEL_EXPORTER_OTLP_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Suppresses the server's log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _seen(service: str, span: Any) -> Seen:
    return Seen(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        failed=span.status.code == 2,
        attributes=_attributes(span.attributes),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
