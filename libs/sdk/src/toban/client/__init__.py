"""Clients of the REST interface: `Client`, and `AsyncClient` (with `pip install toban[async]`). docs/sdk.md is their first page."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toban.client.async_client import AsyncClient
    from toban.client.manifests import EventTriggerManifest, JobManifest, Manifest, ScheduleManifest
    from toban.client.models import (
        AppliedManifest,
        Emitted,
        Event,
        EventTrigger,
        Job,
        LogLine,
        Run,
        Schedule,
        StartedRun,
    )
    from toban.client.sync_client import Client
    from toban.client.target import Target

__all__ = [
    "AppliedManifest",
    "AsyncClient",
    "Client",
    "Emitted",
    "Event",
    "EventTrigger",
    "EventTriggerManifest",
    "Job",
    "JobManifest",
    "LogLine",
    "Manifest",
    "Run",
    "RunState",
    "Schedule",
    "ScheduleManifest",
    "StartedRun",
    "Target",
]


_MODULES = {
    "AsyncClient": "async_client",
    "Client": "sync_client",
    "Target": "target",
    **dict.fromkeys(("EventTriggerManifest", "JobManifest", "Manifest", "ScheduleManifest"), "manifests"),
}


def __getattr__(name: str) -> Any:
    # A program loads only what it uses: AsyncClient needs asyncio and h11.
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'models')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
