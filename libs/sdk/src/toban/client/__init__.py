"""Clients of the REST interface: `Client`, and `AsyncClient` (with `pip install toban[async]`). docs/sdk.md is their first page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toban.client.models import AppliedManifest, Emitted, Event, Job, LogLine, Run, Schedule, StartedRun
from toban.client.sync_client import Client
from toban.client.target import Target

if TYPE_CHECKING:
    from toban.client.async_client import AsyncClient

__all__ = [
    "AppliedManifest",
    "AsyncClient",
    "Client",
    "Emitted",
    "Event",
    "Job",
    "LogLine",
    "Run",
    "Schedule",
    "StartedRun",
    "Target",
]


def __getattr__(name: str) -> Any:
    # Only who uses it pays for asyncio and needs h11.
    if name == "AsyncClient":
        from toban.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
