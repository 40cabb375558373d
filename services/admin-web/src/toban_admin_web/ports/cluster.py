"""What the pages read from coordinators and log-archivers. Every call returns within the seconds given, or raises TobanError."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from toban_admin_web.decide.view_models import (
    Cluster,
    Executor,
    Fire,
    Job,
    LogPart,
    NextSlot,
    PageOf,
    Run,
    RunQuery,
    Schedule,
)


class ClusterReader(Protocol):
    """JobReader, for one request: all its calls share the seconds of the request.

    Raises TobanError UNAVAILABLE and DEADLINE_EXCEEDED, and the errors of each method.
    """

    def cluster(self) -> Cluster:
        """Leader, epoch, members and counts."""

    def executors(self, *, include_off: bool) -> Sequence[Executor]:
        """By worker id; `include_off` adds those that are off."""

    def jobs(self, *, cursor: str = "", limit: int = 50) -> PageOf[Job]:
        """By name."""

    def job(self, name: str) -> Job:
        """One job. Raises JOB_NOT_FOUND."""

    def schedules(self, *, cursor: str = "", limit: int = 50, job: str = "") -> PageOf[Schedule]:
        """By name."""

    def schedule(self, name: str) -> Schedule:
        """One schedule. Raises NOT_FOUND."""

    def next_slots(self, name: str, *, count: int) -> Sequence[NextSlot]:
        """The next `count` slots of a schedule."""

    def fires(self, name: str, *, limit: int) -> Sequence[Fire]:
        """The outcomes of its last slots, newest first."""

    def runs(self, query: RunQuery) -> PageOf[Run]:
        """Newest first."""

    def run(self, run_id: int) -> Run:
        """One run with attempts and events. Raises RUN_NOT_FOUND."""


class LogSource(Protocol):
    """LogReader."""

    def tail(self, run_id: int, *, lines: int, seconds: float) -> Sequence[LogPart]:
        """The last stored lines."""

    def follow(self, run_id: int, *, token: int, from_seq: int, seconds: float) -> Iterator[LogPart]:
        """New lines of one attempt from a sequence number on, or of all attempts (token 0); ends after `seconds`."""

    def whole(self, run_id: int, *, seconds: float) -> Iterator[LogPart]:
        """All stored lines."""
