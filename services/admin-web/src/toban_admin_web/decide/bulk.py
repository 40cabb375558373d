"""A change of all runs that a filter names: what is sent of the filter, and how far the change is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from toban_admin_web.decide.api_models import ChangedRuns
from toban_admin_web.decide.filters import RunFilter

MAX_COUNT = 10**9
_COUNTS = ("total", "matched", "changed", "left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a change is. `until` is when it was counted: runs that were created later are no part of it. `key` names the operation."""

    until: datetime
    key: str
    total: int = 0
    complete: bool = False
    """Whether all runs were counted in `total`; there are more otherwise."""
    matched: int = 0
    changed: int = 0
    left: int = 0
    cursor: str = ""
    problems: tuple[str, ...] = ()
    """Why runs were left as they are, each reason once."""

    def after(self, part: ChangedRuns) -> Progress:
        """With one more part."""
        messages = dict.fromkeys((*self.problems, *(one.message for one in part.skipped)))
        return replace(
            self,
            matched=self.matched + part.matched,
            changed=self.changed + part.changed,
            left=self.left + sum(one.runs for one in part.skipped),
            cursor=part.next_cursor,
            problems=tuple(messages)[:5],
        )

    def hidden(self) -> Mapping[str, str]:
        """The fields of the form that goes on."""
        kept = {name: str(value) for name, value in asdict(self).items() if name in (*_COUNTS, "cursor", "key")}
        return {**kept, "until": self.until.isoformat(), "complete": "1" if self.complete else ""}


def parse_progress(given: Mapping[str, str], *, now: datetime, key: str) -> Progress:
    """Of a form that was sent; what cannot be read counts as absent."""
    cursor = given.get("cursor", "")
    return Progress(
        until=min(_moment(given.get("until", "")) or now, now),
        key=key,
        complete=bool(given.get("complete")),
        cursor=cursor if cursor.isascii() and cursor.isdigit() and len(cursor) < 20 else "",
        total=_count(given.get("total", "")),
        matched=_count(given.get("matched", "")),
        changed=_count(given.get("changed", "")),
        left=_count(given.get("left", "")),
    )


def filter_fields(filters: RunFilter, progress: Progress) -> dict[str, Any]:
    """As the fields of ListRunsRequest."""
    fields = filters.fields()
    until = fields["active_until"]
    return {
        **fields,
        "active_until": min(until, progress.until) if until else progress.until,
        "page": {"cursor": progress.cursor},
    }


def _count(text: str) -> int:
    return min(int(text), MAX_COUNT) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
