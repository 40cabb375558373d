"""Where the running task is: its trace, and what else each of its log lines shows.

structlog is loaded when a log line needs it: commands that carry a trace on and log nothing start without it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from toban_domain.traceparent import TraceContext

TRACE: ContextVar[TraceContext | None] = ContextVar("toban_trace", default=None)


@contextmanager
def shown(**values: Any) -> Iterator[None]:
    """Each log line of the block has these values, those of tasks that it starts included: `shown(run_id=7)`."""
    from structlog.contextvars import bound_contextvars

    with bound_contextvars(**values):
        yield


def show(**values: Any) -> None:
    """Each later log line of the running task, and of tasks that it starts, has these values."""
    from structlog.contextvars import bind_contextvars

    bind_contextvars(**values)


def add_trace(_logger: Any, _method: str, event: Any) -> Any:
    """A structlog processor: the ids of the trace, where there is one."""
    here = TRACE.get()
    if here is not None:
        event.setdefault("trace_id", here.trace_id)
        event.setdefault("span_id", here.span_id)
    return event
