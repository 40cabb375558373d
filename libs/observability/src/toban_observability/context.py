"""Context of the running task: its trace, where its call comes from, and the values that are added to each of its log lines.

structlog is imported lazily: CLI commands that propagate a trace and log nothing start without it.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from toban_domain.traceparent import TraceContext

TRACE: ContextVar[TraceContext | None] = ContextVar("toban_trace", default=None)


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a call comes from, for the audit: the address of the client, and the service whose certificate made the call."""

    address: str = ""
    service: str = ""


_NOWHERE = Caller()
CALLER: ContextVar[Caller] = ContextVar("toban_caller", default=_NOWHERE)
"""Of the call that the task serves; empty in loops."""


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
