"""Names and numbers from the cluster for the shell's completion: quickly, and silently when nobody answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# How long a key press may wait for the cluster, seconds.
PATIENCE_SECONDS = 1.0
MOST = 200

Named = list[tuple[str, str]]


def job_names(incomplete: str) -> Named:
    """Jobs, with their descriptions."""

    def ask(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> Named:
        return [(job.name, job.description) for job in read("ListJobs", pb.ListJobsRequest(page=page)).jobs]

    return _matching(ask, incomplete)


def schedule_names(incomplete: str) -> Named:
    """Schedules, with their rules."""

    def ask(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> Named:
        found = read("ListSchedules", pb.ListSchedulesRequest(page=page)).schedules
        return [(item.name, f"{item.job}, {item.rule}") for item in found]

    return _matching(ask, incomplete)


def trigger_names(incomplete: str) -> Named:
    """Triggers, with what they do."""

    def ask(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> Named:
        found = read("ListTriggers", pb.ListTriggersRequest(page=page)).triggers
        return [(item.name, f"{item.event_type} starts {item.job}") for item in found]

    return _matching(ask, incomplete)


def run_numbers(incomplete: str) -> Named:
    """The latest runs, with job and state."""

    def ask(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> Named:
        return [(str(run.id), f"{run.job} {run.state}") for run in read("ListRuns", pb.ListRunsRequest(page=page)).runs]

    return _matching(ask, incomplete)


def executor_numbers(incomplete: str) -> Named:
    """Executors that are there, with their nodes."""

    def ask(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> Named:
        del page
        found = read("ListExecutors", pb.ListExecutorsRequest()).executors
        return [(str(item.worker_id), f"{item.node_id} {item.state}") for item in found]

    return _matching(ask, incomplete)


def _matching(ask: Callable[[Any, Any, Callable[[str, Any], Any]], Named], incomplete: str) -> Named:
    """What begins with the word so far; nothing at all when anything is wrong, since a prompt is no place for errors."""
    try:
        from toban_cli.client import connect
        from toban_proto.v1 import coordinator_pb2
        from toban_proto.v1.common_pb2 import Page

        with connect() as client:

            def read(method: str, request: Any) -> Any:
                return client.read(method, request, timeout=PATIENCE_SECONDS)

            found = ask(coordinator_pb2, Page(limit=MOST), read)
    except Exception:
        return []
    return [(name, about) for name, about in found if name.startswith(incomplete)]
