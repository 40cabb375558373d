"""The spans of live attempts, and the log line of each end."""

from dataclasses import replace

from toban_domain.epoch import term_of
from toban_domain.outcome import AttemptKey, Outcome
from toban_domain.traceparent import parse
from toban_executor.decide.models import StartOrder
from toban_observability import tracing
from toban_observability.logs import get_logger
from toban_observability.tracing import Attributes, OpenSpan

_log = get_logger(__name__)


class AttemptSpans:
    """Empty while tracing is off."""

    def __init__(self) -> None:
        self._open: dict[AttemptKey, OpenSpan] = {}

    def begin(self, order: StartOrder) -> StartOrder:
        """With the span of the attempt, the parent of the job's spans; unchanged while tracing is off."""
        names: Attributes = {
            "toban.run_id": order.key.run_id,
            "toban.token": str(order.key.token),
            "toban.attempt": order.attempt,
        }
        span = tracing.begin(f"run {order.job_name}", parent=parse(order.traceparent), attributes=names)
        if span is None:
            return order
        self._open[order.key] = span
        return replace(order, traceparent=span.context.header)

    def end(self, key: AttemptKey, outcome: Outcome) -> None:
        """The attempt is over; a failure is logged."""
        trace = {}
        if (span := self._open.pop(key, None)) is not None:
            trace = {"trace_id": span.context.trace_id}
            span.end({"toban.outcome": outcome.kind.value, "toban.reason": outcome.reason.value}, outcome.error_summary)
        if outcome.error_summary:
            known = {"run_id": key.run_id, "token": key.token, "epoch": term_of(key.token), **trace}
            _log.info("attempt ended", kind=outcome.kind, summary=outcome.error_summary, **known)
