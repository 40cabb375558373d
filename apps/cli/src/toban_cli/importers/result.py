"""The result of an import: an entry for each definition, with the documents that were made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from toban_domain.template import MARK

_API = "toban/v1"
ORIGIN_LABEL = "origin"
# An executor starts nothing whose command and variables are larger.
_MAX_BYTES = 192 * 1024


class Fate(StrEnum):
    """The result of a definition."""

    CONVERTED = "converted"
    PARTIAL = "converted in part"
    UNTIMED = "converted without its time"
    KEPT = "carried over"
    LABEL = "kept as a label only"
    LOST = "NOT carried over"


# A definition with one of these is not complete: exit code 65.
INCOMPLETE = (Fate.LOST, Fate.UNTIMED, Fate.PARTIAL)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document comes from: `kind` is the value of the label `origin`, `file` tells it from all other files ("" = unknown).

    The label of the name `kind` holds `file`.
    """

    kind: str
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read. `timezone` holds for times without a zone, `zone_note` is its reason; `label_of` gives the label of a file ("" = none).

    `interpreter` and `python_path` are those of python steps.
    """

    timezone: str = "UTC"
    zone_note: str = ""
    prefix: str = ""
    interpreter: str = ""
    python_path: tuple[str, ...] = ()
    label_of: Callable[[str], str] = lambda _path: ""

    def origin_of(self, kind: str, path: str) -> Origin:
        """The origin of a document from the file."""
        return Origin(kind, self.label_of(path))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a definition is: "line" and "7", its file, and its text or what it is about."""

    what: str
    key: str
    source: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One definition of the report. `documents` are what was made of it; `outcome` is the fate as text.

    `is_job`: it starts something, so that its loss counts.
    """

    place: Place
    is_job: bool
    fate: Fate
    outcome: str
    notes: tuple[str, ...] = ()
    documents: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A whole import. `notes` are about its files; `for_all` holds for all its jobs; `counted` names what becomes a job, one and several."""

    entries: list[Entry]
    notes: Sequence[str] = ()
    for_all: Sequence[str] = ()
    counted: tuple[str, str] = ("definition", "definitions")

    @property
    def lost(self) -> int:
        """How many definitions were not carried over, or not completely."""
        return sum(entry.fate in INCOMPLETE and entry.is_job for entry in self.entries)

    @property
    def documents(self) -> list[dict[str, Any]]:
        """All documents in the order of their definitions."""
        return [document for entry in self.entries for document in entry.documents]


@dataclass(slots=True, kw_only=True)
class Draft:
    """A job and its schedules in the making.

    `schedules` are specs without `job`. `notes` are differences; each of `missing` is a part that the job needs and does not have; `untimed` is
    why it has no schedule although it should have one.
    """

    name: str
    job: dict[str, Any]
    schedules: list[dict[str, Any]] = field(default_factory=list)
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    untimed: str = ""


def documents(
    *,
    name: str,
    job: Mapping[str, Any],
    schedules: Sequence[Mapping[str, Any]],
    description: str,
    labels: Mapping[str, str],
    origin: Origin,
) -> tuple[dict[str, Any], ...]:
    """The Job, then its Schedules: the first has the name of the job, further ones a number behind it."""
    from_there = {ORIGIN_LABEL: origin.kind, **({origin.kind: origin.file} if origin.file else {})}
    rest = {**({"description": description} if description else {}), "labels": {**labels, **from_there}}
    made = [{"apiVersion": _API, "kind": "Job", "metadata": {"name": name, **rest}, "spec": dict(job)}]
    for number, schedule in enumerate(schedules, start=1):
        metadata = {"name": name if number == 1 else f"{name}-{number}", **rest}
        made.append({"apiVersion": _API, "kind": "Schedule", "metadata": metadata, "spec": {"job": name, **schedule}})
    return tuple(made)


def wrong(made: Sequence[dict[str, Any]]) -> str:
    """Why `toban validate` would refuse these documents or no executor could start them, "" when there is nothing."""
    from toban_manifests.read import Document, find_problems
    from toban_schedule import problems

    size = len(json.dumps(made, ensure_ascii=False).encode())
    if size > _MAX_BYTES:
        return f"its command, variables and labels have {size} bytes, the limit is {_MAX_BYTES}: put some into a file"
    _, found = find_problems([Document("import", body) for body in made], check_rule=problems)
    return "; ".join(
        f"{item.path.removeprefix('spec.')}: {item.message}" + (f" ({item.hint})" if item.hint else "")
        for item in found
    )


def entry_of(draft: Draft, place: Place, origin: Origin) -> Entry:
    """The entry of a definition that became a draft. Schedules of a job with a missing part are disabled."""
    made = documents(
        name=draft.name,
        job=_without_templates(draft.job),
        schedules=[{**schedule, "enabled": False} if draft.missing else schedule for schedule in draft.schedules],
        description=" ".join(draft.description.split())[:1000],
        labels=draft.labels,
        origin=origin,
    )
    if problem := wrong(made):
        return lost(problem, place)
    return Entry(
        place=place,
        is_job=True,
        fate=Fate.PARTIAL if draft.missing else Fate.UNTIMED if draft.untimed else Fate.CONVERTED,
        outcome=_outcome(draft),
        notes=(*(f"MISSING: {part}" for part in draft.missing), *draft.notes),
        documents=made,
    )


def lost(reason: str, place: Place, *, is_job: bool = True) -> Entry:
    """The entry of a definition that cannot be carried over."""
    return Entry(place=place, is_job=is_job, fate=Fate.LOST, outcome=reason)


def _without_templates(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with `${{` in its texts as text: other schedulers have no templates of Toban."""
    return {key: _literal(value) if key in ("steps", "env") else value for key, value in job.items()}


def _literal(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(MARK, f"${MARK}")
    if isinstance(value, Mapping):
        return {key: _literal(item) for key, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, list) else value


def _outcome(draft: Draft) -> str:
    if not draft.schedules:
        why = f": {draft.untimed}" if draft.untimed else ""
        return f"job {draft.name} WITHOUT a schedule{why}; start it with `toban run start {draft.name}`"
    rules = ", ".join(_rule(schedule) for schedule in draft.schedules)
    off = ", its schedule is disabled until you have added what is missing" if draft.missing else ""
    some = f"; without a schedule for a part of its times: {draft.untimed}" if draft.untimed else ""
    return f"job and schedule {draft.name} ({rules}){off}{some}"


def _rule(schedule: Mapping[str, Any]) -> str:
    if "cron" in schedule:
        return f"cron: {schedule['cron']} {schedule.get('timezone', 'UTC')}"
    return f"interval_seconds: {schedule['interval_seconds']}"
