"""Names and numbers from the cluster for shell completion: quickly, and silently when no coordinator responds.

Names only, without descriptions: a shell might evaluate what people wrote there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

# How long a key press may wait for the cluster, seconds.
LOOKUP_TIMEOUT_SECONDS = 1.0
MOST = 200

# Characters without a meaning to any shell.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def job_names(incomplete: str) -> list[str]:
    """Jobs."""

    def fetch(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> list[str]:
        return [job.name for job in read("ListJobs", pb.ListJobsRequest(page=page)).jobs]

    return _matching(fetch, incomplete)


def schedule_names(incomplete: str) -> list[str]:
    """Schedules."""

    def fetch(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> list[str]:
        found = read("ListSchedules", pb.ListSchedulesRequest(page=page)).schedules
        return [item.name for item in found]

    return _matching(fetch, incomplete)


def trigger_names(incomplete: str) -> list[str]:
    """Triggers."""

    def fetch(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> list[str]:
        found = read("ListTriggers", pb.ListTriggersRequest(page=page)).triggers
        return [item.name for item in found]

    return _matching(fetch, incomplete)


def executor_group_names(incomplete: str) -> list[str]:
    """Groups of executors."""

    def fetch(pb: Any, _page: Any, _read: Callable[[str, Any], Any]) -> list[str]:
        from toban_cli.client import connect

        with connect() as client:
            request = pb.ListExecutorGroupsRequest()
            found = client.call("Operations.ListExecutorGroups", request, timeout=LOOKUP_TIMEOUT_SECONDS)
        return [group.name for group in found.groups]

    return _matching(fetch, incomplete)


def run_numbers(incomplete: str) -> list[str]:
    """The latest runs."""

    def fetch(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> list[str]:
        return [str(run.id) for run in read("ListRuns", pb.ListRunsRequest(page=page)).runs]

    return _matching(fetch, incomplete)


def executor_numbers(incomplete: str) -> list[str]:
    """Executors that have not left."""

    def fetch(pb: Any, page: Any, read: Callable[[str, Any], Any]) -> list[str]:
        del page
        found = read("ListExecutors", pb.ListExecutorsRequest()).executors
        return [str(item.worker_id) for item in found]

    return _matching(fetch, incomplete)


def context_names(incomplete: str) -> list[str]:
    """Contexts of this person."""
    from toban_cli.contexts import ContextFile
    from toban_domain.errors import TobanError

    try:
        return [name for name in sorted(ContextFile(os.environ).load().named) if name.startswith(incomplete)]
    except TobanError:
        return []


def _matching(fetch: Callable[[Any, Any, Callable[[str, Any], Any]], list[str]], incomplete: str) -> list[str]:
    """Values that begin with `incomplete`; none after any error, since a prompt is no place for errors."""
    try:
        from toban_cli.client import connect
        from toban_proto.v1 import coordinator_pb2
        from toban_proto.v1.common_pb2 import Page

        with connect() as client:

            def read(method: str, request: Any) -> Any:
                return client.call(f"JobReader.{method}", request, timeout=LOOKUP_TIMEOUT_SECONDS)

            found = fetch(coordinator_pb2, Page(limit=MOST), read)
    except Exception:
        return []
    return [name for name in found if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
