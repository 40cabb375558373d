"""What a pass of the archiver did: for its caller, the lease, metrics and the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date

from toban_domain.errors import TobanError
from toban_log_archiver.app.archive_steps import Archived
from toban_log_archiver.store.archive_expiry import ExpiredObject
from toban_observability import metrics
from toban_observability.logs import get_logger

PASS_SECONDS = 60.0
"""There is a pass this often."""

_log = get_logger(__name__)
_failures = metrics.counter(
    "toban_archive_failures_total",
    "Failed archive operations by kind: unavailable, differs, database, coordinator.",
    ("kind",),
)
for _kind in ("unavailable", "differs", "database", "coordinator"):
    _failures.labels(_kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEvent:
    """One thing that a pass did: sealed, would_archive, archived, dropped, failed, would_expire, expired or forgotten."""

    action: str
    log_day: date | None = None
    key: str = ""
    tokens: int = 0
    chunks: int = 0
    lines: int = 0
    bytes: int = 0
    message: str = ""


OnEvent = Callable[[PassEvent], None]


@dataclass(slots=True)
class PassReport:
    """What a pass did so far, and what failed; `on_event` gets each."""

    on_event: OnEvent
    objects: int = 0
    chunks: int = 0
    bytes: int = 0
    days: int = 0
    expired: int = 0
    errors: list[str] = field(default_factory=list)

    def archived(self, done: Archived) -> None:
        """An object was verified: it counts from now on."""
        self.objects += 1
        self.chunks += done.chunks
        self.bytes += done.bytes
        names = ("log_day", "key", "tokens", "chunks", "lines", "bytes")
        self.on_event(PassEvent(action="archived", **{name: getattr(done, name) for name in names}))
        _log.info("archived", object=done.key, tokens=done.tokens, chunks=done.chunks, bytes=done.bytes)

    def expired_one(self, one: ExpiredObject | date) -> None:
        """An expired object left the bucket, or the last rows of a day were deleted."""
        if isinstance(one, date):
            self.on_event(PassEvent(action="forgotten", log_day=one))
            _log.info("a day is forgotten", log_day=str(one))
            return
        self.expired += 1
        names = ("log_day", "key", "tokens", "chunks", "lines", "bytes")
        self.on_event(PassEvent(action="expired", **{name: getattr(one, name) for name in names}))
        _log.info("expired", object=one.key, bytes=one.bytes)

    def failed(self, kind: str, error: TobanError, log_day: date | None = None) -> None:
        """A part of the pass failed; `kind` is a label of the metric."""
        _failures.labels(kind).inc()
        self.errors.append(error.message)
        self.on_event(PassEvent(action="failed", log_day=log_day, message=error.message))
        _log.warning("archive failed", kind=kind, error=error.message, next_try_seconds=PASS_SECONDS)

    @property
    def problem(self) -> str:
        """How the pass failed; empty when it went well."""
        return "; ".join(self.errors[:3])

    @property
    def summary(self) -> str:
        """What it did, for people."""
        expired = f", {self.expired} objects expired" if self.expired else ""
        return f"{self.objects} objects, {self.chunks} chunks, {self.bytes} bytes, {self.days} days dropped{expired}"
