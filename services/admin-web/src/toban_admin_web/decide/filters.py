"""Query strings of the pages: the filters of the list of runs, and the request for a part of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_admin_web.decide.view_models import RunQuery
from toban_domain.run import RunState

LIMITS = (25, 50, 100, 200)
DEFAULT_LIMIT = 50
MAX_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """The filters in a URL. `state` is one state, or the name of a group of STATE_GROUPS; `ahead` includes future runs."""

    job: str = ""
    schedule: str = ""
    state: str = ""
    ahead: bool = False
    limit: int = DEFAULT_LIMIT
    cursor: str = ""

    def query(self) -> RunQuery:
        """The query for the coordinators."""
        states = STATE_GROUPS.get(self.state, (self.state,) if self.state else ())
        return RunQuery(
            job=self.job, schedule=self.schedule, states=states, ahead=self.ahead, cursor=self.cursor, limit=self.limit
        )

    def url_query(self, **changes: str) -> dict[str, str]:
        """These filters with some changed ("" removes one), for a URL; the cursor is dropped, so it is the first page."""
        values = {
            "job": self.job,
            "schedule": self.schedule,
            "state": self.state,
            "ahead": "1" if self.ahead else "",
            "limit": str(self.limit) if self.limit != DEFAULT_LIMIT else "",
        }
        return {name: value for name, value in (values | changes).items() if value}

    def active(self) -> list[tuple[str, str]]:
        """The filters that narrow the list: (name, value)."""
        values = [("job", self.job), ("schedule", self.schedule), ("state", self.state)]
        return [(name, value) for name, value in values if value]


def parse_filter(query: Mapping[str, str]) -> RunFilter:
    """The filters of a URL; an invalid value counts as absent."""
    state = query.get("state", "")
    limit = query.get("limit", "")
    cursor = query.get("cursor", "")
    return RunFilter(
        job=query.get("job", "").strip()[:MAX_TEXT],
        schedule=query.get("schedule", "").strip()[:MAX_TEXT],
        state=state if state in STATE_GROUPS or state in RunState.__members__ else "",
        ahead=query.get("ahead", "") == "1",
        limit=int(limit) if limit in {str(one) for one in LIMITS} else DEFAULT_LIMIT,
        cursor=cursor if cursor.isascii() and cursor.isdigit() and len(cursor) < 20 else "",
    )


def wants_part(query: Mapping[str, str]) -> bool:
    """Whether the page's script requests only the part that it refreshes (`?part=1`)."""
    return query.get("part") == "1"
