"""What the pages ask of coordinators and log-archivers. All of it reads; every call ends within the seconds given, or raises TobanError."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from toban_admin_web.decide.records import (
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
    """JobReader, for one request: all calls together have the seconds that it was given.

    Raises TobanError UNAVAILABLE and DEADLINE_EXCEEDED, and what the methods name.
    """

    def cluster(self) -> Cluster:
        """Leader, members, counts."""

    def executors(self, *, include_off: bool) -> Sequence[Executor]:
        """By worker id; with those that are gone when asked."""

    def jobs(self, *, cursor: str = "", limit: int = 50) -> PageOf[Job]:
        """By name."""

    def job(self, name: str) -> Job:
        """One job. Raises JOB_NOT_FOUND."""

    def schedules(self, *, cursor: str = "", limit: int = 50, job: str = "") -> PageOf[Schedule]:
        """By name."""

    def schedule(self, name: str) -> Schedule:
        """One schedule. Raises NOT_FOUND."""

    def next_slots(self, name: str, *, count: int) -> Sequence[NextSlot]:
        """The next times of a schedule."""

    def fires(self, name: str, *, limit: int) -> Sequence[Fire]:
        """What became of its last slots, newest first."""

    def runs(self, query: RunQuery) -> PageOf[Run]:
        """Newest first."""

    def run(self, run_id: int) -> Run:
        """One run with attempts and events. Raises RUN_NOT_FOUND."""


class LogSource(Protocol):
    """LogReader."""

    def tail(self, run_id: int, *, lines: int, seconds: float) -> Sequence[LogPart]:
        """The last lines that are stored."""

    def follow(self, run_id: int, *, token: int, from_seq: int, seconds: float) -> Iterator[LogPart]:
        """Lines as they come, of one attempt from a sequence number on, or of all (token 0); ends quietly after `seconds`."""

    def whole(self, run_id: int, *, seconds: float) -> Iterator[LogPart]:
        """Everything that is stored, from the start."""
