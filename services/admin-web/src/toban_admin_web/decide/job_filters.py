"""The filters and the order of the list of jobs, as its address has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toban_admin_web.decide.filters import MAX_TEXT, name_filter

# So many of the last runs of each job are shown.
HISTORY = 20
SORTS = ("name", "next_run")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """The filters in a URL. `label` is `key=value`; `sort` is one of SORTS."""

    name: str = ""
    label: str = ""
    failing: bool = False
    disabled: bool = False
    sort: str = "name"
    cursor: str = ""

    @property
    def wrong_label(self) -> bool:
        """Whether the label is none; the list leaves it out then."""
        key, equals, _ = self.label.partition("=")
        return bool(self.label) and not (key and equals)

    @property
    def narrows(self) -> bool:
        """Whether it leaves out jobs by more than their names."""
        return bool(self.label or self.failing or self.disabled)

    def fields(self, limit: int) -> dict[str, Any]:
        """As the fields of ListJobsRequest."""
        return {
            "name": self.name,
            "label": "" if self.wrong_label else self.label,
            "failing": self.failing,
            "disabled": self.disabled,
            "sort": self.sort,
            "history": HISTORY,
            "page": {"limit": limit, "cursor": self.cursor},
        }

    def url_query(self, **changes: str) -> dict[str, str]:
        """These filters with some changed ("" removes one), for a URL of the first page."""
        own = {
            "name": self.name,
            "label": self.label,
            "failing": "1" if self.failing else "",
            "disabled": "1" if self.disabled else "",
            "sort": "" if self.sort == SORTS[0] else self.sort,
        }
        return {name: value for name, value in (own | changes).items() if value}


def parse_job_filter(query: Mapping[str, str]) -> JobFilter:
    """The filters of a URL; an unknown order counts as absent."""
    sort = query.get("sort", "")
    return JobFilter(
        name=name_filter(query),
        label=query.get("label", "").strip()[:MAX_TEXT],
        failing=query.get("failing", "") == "1",
        disabled=query.get("disabled", "") == "1",
        sort=sort if sort in SORTS else SORTS[0],
        cursor=query.get("cursor", ""),
    )
