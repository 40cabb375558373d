"""Query strings of the pages: the filters of the list of runs, and the request for a part of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_domain.concurrency import SCOPES
from toban_domain.run import ORIGINS, RunState

LIMITS = (25, 50, 100, 200)
DEFAULT_LIMIT = 50
MAX_TEXT = 200
# Of a filter by numbers of runs: the longest list.
MAX_IDS = max(LIMITS)
MAX_DIGITS = 19
_LOCAL = re.compile(r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?", re.ASCII)
_TEXTS = ("job", "schedule", "executor")
AUDIT_FILTERS = ("actor", "action", "target", "address")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """The filters in a URL. `state` is one state, or the name of a group of STATE_GROUPS; `ahead` includes future runs.

    `scope` is `account:17` or a scope alone, `label` is `key=value`, and the times are those of an input `datetime-local`, in UTC.
    """

    job: str = ""
    schedule: str = ""
    executor: str = ""
    state: str = ""
    origin: str = ""
    scope: str = ""
    label: str = ""
    since: str = ""
    until: str = ""
    ahead: bool = False
    limit: int = DEFAULT_LIMIT
    cursor: str = ""
    ids: tuple[int, ...] = ()
    """Only these runs."""

    def fields(self) -> dict[str, Any]:
        """As the fields of ListRunsRequest."""
        scope, _, scope_id = self.scope.partition(":")
        key, _, value = self.label.partition("=")
        return {
            "job": self.job,
            "schedule": self.schedule,
            "states": STATE_GROUPS.get(self.state, (self.state,) if self.state else ()),
            "executor": self.executor,
            "origin": self.origin,
            "scope": scope,
            "scope_id": scope_id,
            "labels": {key: value} if key else {},
            "active_from": moment(self.since),
            "active_until": moment(self.until),
            # Who marks a run that is made ahead means it.
            "include_ahead": self.ahead or bool(self.ids),
            "run_ids": self.ids,
            "page": {"limit": self.limit, "cursor": self.cursor},
        }

    def url_query(self, **changes: str) -> dict[str, str]:
        """These filters with some changed ("" removes one), for a URL; the cursor is dropped, so it is the first page."""
        others = {
            "ahead": "1" if self.ahead else "",
            "limit": str(self.limit) if self.limit != DEFAULT_LIMIT else "",
            "ids": ",".join(str(one) for one in self.ids),
        }
        return {name: value for name, value in (dict(self._narrowing()) | others | changes).items() if value}

    def active(self) -> list[tuple[str, str]]:
        """The filters that narrow the list: (name, value)."""
        marked = [("ids", ", ".join(str(one) for one in self.ids))] if self.ids else []
        return [(name, value) for name, value in self._narrowing() if value] + marked

    def _narrowing(self) -> list[tuple[str, str]]:
        names = ("job", "schedule", "executor", "state", "origin", "scope", "label", "since", "until")
        return [(name, getattr(self, name)) for name in names]


def parse_filter(query: Mapping[str, str]) -> RunFilter:
    """The filters of a URL; an invalid value counts as absent."""
    given = {name: query.get(name, "").strip()[:MAX_TEXT] for name in (*_TEXTS, "state", "origin", "scope", "label")}
    times = {name: query.get(name, "").strip() for name in ("since", "until")}
    limit = query.get("limit", "")
    kept = {
        "state": given["state"] in STATE_GROUPS or given["state"] in RunState.__members__,
        "origin": given["origin"] in ORIGINS,
        "scope": given["scope"].partition(":")[0] in SCOPES,
        "label": bool(given["label"].partition("=")[0]) and "=" in given["label"],
    }
    return RunFilter(
        **{name: value if kept.get(name, True) else "" for name, value in given.items()},
        **{name: text if moment(text) else "" for name, text in times.items()},
        ahead=query.get("ahead", "") == "1",
        limit=int(limit) if limit in {str(one) for one in LIMITS} else DEFAULT_LIMIT,
        cursor=_cursor(query.get("cursor", "")),
        ids=parse_ids(query.get("ids", "").split(",")),
    )


def parse_ids(given: Sequence[str]) -> tuple[int, ...]:
    """The numbers of runs among some texts, each once."""
    numbers = (int(one) for one in given if 0 < len(one) < MAX_DIGITS and one.isascii() and one.isdigit())
    return tuple(dict.fromkeys(number for number in numbers if number))[:MAX_IDS]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """The filters of the audit in a URL; "" = any."""

    actor: str = ""
    action: str = ""
    target: str = ""
    address: str = ""
    since: str = ""
    until: str = ""
    cursor: str = ""

    def fields(self) -> dict[str, Any]:
        """As the fields of ListAuditRequest."""
        return {**self.wanted(), "page": {"cursor": self.cursor}}

    def wanted(self) -> dict[str, Any]:
        """The same without a page."""
        times = {"since": moment(self.since), "until": moment(self.until)}
        return {**{name: getattr(self, name) for name in AUDIT_FILTERS}, **times}

    def url_query(self) -> dict[str, str]:
        """These filters for a URL, from the first page on."""
        return {name: value for name in (*AUDIT_FILTERS, "since", "until") if (value := getattr(self, name))}


def parse_audit_filter(query: Mapping[str, str]) -> AuditFilter:
    """The filters of the audit in a URL; a cursor that is none counts as absent."""
    return AuditFilter(
        **{name: query.get(name, "").strip()[:MAX_TEXT] for name in AUDIT_FILTERS},
        **{name: text for name in ("since", "until") if moment(text := query.get(name, "").strip())},
        cursor=_cursor(query.get("cursor", "")),
    )


def name_filter(query: Mapping[str, str]) -> str:
    """The part of a name by which a list is narrowed; "" = none."""
    return query.get("name", "").strip()[:MAX_TEXT]


def _cursor(text: str) -> str:
    return text if text.isascii() and text.isdigit() and len(text) < 20 else ""


def moment(text: str) -> datetime | None:
    """A time as an input `datetime-local` has it, in UTC; None for anything else."""
    if not _LOCAL.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def wants_part(query: Mapping[str, str]) -> bool:
    """Whether the page's script requests only the part that it refreshes (`?part=1`)."""
    return query.get("part") == "1"
