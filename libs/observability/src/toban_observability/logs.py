"""Structured logs of a service: JSON lines in containers, coloured lines on a terminal; secrets are masked, line breaks escaped."""

import logging
import sys
from typing import Any, TextIO, cast

from toban_observability.context import add_trace
from toban_observability.log_throttle import ThrottleFilter
from toban_observability.masking import escape_event, mask_event
from toban_observability.optional_imports import without

# For tracebacks on a terminal; they take a third of the start of an executor.
with without("rich", "better_exceptions"):
    import structlog
    from structlog.typing import FilteringBoundLogger, Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
QUIET = ("grpc", "asyncio", "botocore", "urllib3", "psycopg.pool")
"""Libraries that log warnings and errors only."""
REPEATING = ("psycopg.pool",)
"""Libraries that log a warning for each attempt while a server is unreachable."""


def setup_logging(service: str, fmt: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Sends all logs of this process (also those of libraries) to `stream`, stdout by default.

    `fmt` is json, console, or auto: console when the stream is a terminal. `level` is debug, info, warning or error.
    """
    out = stream or sys.stdout
    as_json = fmt == "json" or (fmt == "auto" and not out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(service),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_final(as_json, out)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, LEVELS[level]))
    for name in REPEATING:
        logging.getLogger(name).filters[:] = [ThrottleFilter()]
    _configure(service, LEVELS[level])


def get_logger(name: str = "toban", **values: Any) -> FilteringBoundLogger:
    """A logger: `log.info("what happened", run_id=7)`. Works before `setup_logging` too and follows it afterwards."""
    return cast(FilteringBoundLogger, structlog.get_logger(name, **values))


def _configure(service: str, level: int) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(service),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _shared(service: str) -> list[Processor]:
    def add_service(_logger: Any, _method: str, event: Any) -> Any:
        event.setdefault("service", service)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_service,
        add_trace,
        # Formats the traceback before masking: messages of database errors contain the URL.
        structlog.processors.format_exc_info,
        mask_event,
    ]


def _final(as_json: bool, out: TextIO) -> list[Processor]:
    if as_json:
        return [structlog.processors.JSONRenderer(default=str)]
    return [escape_event, structlog.dev.ConsoleRenderer(colors=out.isatty())]


# Lines logged before `setup_logging` (or in a test) are masked too, and go to the standard library's handlers.
_configure("toban", logging.INFO)
