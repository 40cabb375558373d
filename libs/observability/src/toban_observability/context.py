"""Context of the running task: its trace, and the values that are added to each of its log lines.

structlog is imported lazily: CLI commands that propagate a trace and log nothing start without it.
"""

from contextvars import ContextVar
from typing import Any

from toban_domain.traceparent import TraceContext

TRACE: ContextVar[TraceContext | None] = ContextVar("toban_trace", default=None)


def bind_log_context(**values: Any) -> None:
    """Adds values to each later log line of the running task and of the tasks that it starts."""
    from structlog.contextvars import bind_contextvars

    bind_contextvars(**values)


def add_trace(_logger: Any, _method: str, event: Any) -> Any:
    """A structlog processor that adds the ids of the current trace, if any."""
    here = TRACE.get()
    if here is not None:
        event.setdefault("trace_id", here.trace_id)
        event.setdefault("span_id", here.span_id)
    return event
