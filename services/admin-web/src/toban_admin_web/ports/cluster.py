"""What the pages read from coordinators and log-archivers. Every call returns within the seconds given, or raises TobanError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NewType, Protocol

from toban_admin_web.decide.dashboard import Overview
from toban_admin_web.decide.explanation import RunExplanation
from toban_admin_web.decide.view_models import (
    AuditEntry,
    AuditQuery,
    Cluster,
    Executor,
    Fire,
    FoundLines,
    Job,
    JobDay,
    JobVersion,
    LogPart,
    LogPlace,
    NextSlots,
    PageOf,
    Run,
    RunQuery,
    Schedule,
)

ReadTicket = NewType("ReadTicket", bytes)
"""A coordinator's permission to read the output of a run, serialised."""


class ClusterReader(Protocol):
    """JobReader, for one request: all its calls share the seconds of the request.

    Raises TobanError UNAVAILABLE and DEADLINE_EXCEEDED, and the errors of each method.
    """

    def cluster(self) -> Cluster:
        """Leader, epoch, members and counts."""

    def overview(self) -> Overview:
        """What needs attention. Raises UNIMPLEMENTED where coordinators are of an older release."""

    def executors(self, *, include_off: bool) -> Sequence[Executor]:
        """By worker id; `include_off` adds those that are off."""

    def jobs(self, *, cursor: str = "", limit: int = 50, name: str = "") -> PageOf[Job]:
        """By name, those with `name` as a part of it."""

    def job(self, name: str) -> Job:
        """One job. Raises JOB_NOT_FOUND."""

    def job_versions(self, name: str, *, cursor: str = "", limit: int = 50) -> PageOf[JobVersion]:
        """The definitions that it has had, newest first. Raises JOB_NOT_FOUND."""

    def job_days(self, name: str, *, days: int) -> Sequence[JobDay]:
        """How its runs ended on each of the last days, oldest first; one without ended runs is left out. Raises JOB_NOT_FOUND."""

    def schedules(self, *, cursor: str = "", limit: int = 50, job: str = "", name: str = "") -> PageOf[Schedule]:
        """By name, those with `name` as a part of it."""

    def schedule(self, name: str) -> Schedule:
        """One schedule. Raises NOT_FOUND."""

    def next_slots(self, name: str, *, count: int) -> NextSlots:
        """The next `count` slots of a schedule."""

    def fires(self, name: str, *, limit: int) -> Sequence[Fire]:
        """The outcomes of its last slots, newest first."""

    def runs(self, query: RunQuery) -> PageOf[Run]:
        """Newest first."""

    def run(self, run_id: int) -> Run:
        """One run with attempts and events. Raises RUN_NOT_FOUND."""

    def explain(self, run_id: int) -> RunExplanation:
        """Why a run waits, or what became of it. Raises RUN_NOT_FOUND."""

    def read_ticket(self, *run_ids: int) -> ReadTicket:
        """What a log-archiver needs to give the output of these runs, for a minute. Raises PERMISSION_DENIED."""

    def audit(self, query: AuditQuery) -> PageOf[AuditEntry]:
        """Newest first; it may take longer than the others. Raises PERMISSION_DENIED for people without role admin for everything."""


class LogSource(Protocol):
    """LogReader. Every call needs the ticket of its run."""

    def tail(self, run_id: int, ticket: ReadTicket, *, lines: int, seconds: float) -> Sequence[LogPart]:
        """The last stored lines."""

    def follow(
        self, run_id: int, ticket: ReadTicket, *, token: int, from_seq: int, seconds: float
    ) -> Iterator[LogPart]:
        """New lines of one attempt from a sequence number on, or of all attempts (token 0); ends after `seconds`."""

    def whole(self, run_id: int, ticket: ReadTicket, *, seconds: float) -> Iterator[LogPart]:
        """All stored lines."""

    def select(
        self, run_id: int, ticket: ReadTicket, fields: Mapping[str, Any], *, seconds: float
    ) -> Iterator[LogPart]:
        """The stored lines that `fields` of ReadLogRequest select; `streams` by name. Raises INVALID_ARGUMENT."""

    def search(
        self,
        run_ids: Sequence[int],
        ticket: ReadTicket,
        fields: Mapping[str, Any],
        *,
        after: LogPlace | None,
        seconds: float,
    ) -> FoundLines:
        """Lines of several runs, as far as one call goes; `fields` of SearchLogRequest, `streams` by name. Raises INVALID_ARGUMENT."""
