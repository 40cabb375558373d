"""What the pages are about: which changes of the cluster they follow."""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Any

KINDS = frozenset({"runs", "cluster", "settings"})
# By the module of the page; all kinds for others.
_TOPICS = {
    "runs": "runs",
    "timeline": "runs",
    "executors": "cluster",
    "cluster": "cluster",
    "settings": "settings",
    # A coordinator has a new answer each 15 seconds at most, so changes of runs are no reason to read it.
    "archive": "settings",
    "audit": "settings",
    "load": "settings",
    "jobs": "runs settings",
    "schedules": "runs settings",
    "limits": "runs settings",
}
MAX_TOPICS = 8
MAX_AGE = timedelta(minutes=10)


def topics_of(endpoint: str, arguments: Mapping[str, Any]) -> str:
    """As the page asks for them."""
    if endpoint == "runs.show":
        return f"run:{arguments['run_id']}"
    return _TOPICS.get(endpoint.partition(".")[0], "cluster runs settings")


def parse_topics(text: str) -> Set[str]:
    """What a page asks for; unknown topics are left out."""
    found = text.split()[:MAX_TOPICS]
    return {
        one for one in found if one in KINDS or (one.startswith("run:") and one[4:].isascii() and one[4:].isdigit())
    }


def parse_since(text: str, now: datetime) -> datetime:
    """When the page was made; `now` for anything that is no time of the last minutes."""
    try:
        since = datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError):
        return now
    return since if now - MAX_AGE <= since <= now else now
