"""Brings the site in line with what a project declares: what would change, the differences, and the change."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban.client import AppliedManifest, Client
from toban.django.declarations import LABEL
from toban.errors import NotFoundError

REASON = "no longer declared by the Django project"
"""Of schedules that `toban_sync --prune` has paused; declared again, they are resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a sync does. `diffs` has the lines of each object that is changed, `orphans` are schedules that are declared no more."""

    changes: Sequence[AppliedManifest]
    diffs: Mapping[tuple[str, str], Sequence[str]]
    orphans: Sequence[str]
    resumed: Sequence[str]

    @property
    def is_empty(self) -> bool:
        """Whether all that is declared is on the site, and active."""
        return not self.resumed and all(one.action == "unchanged" for one in self.changes)


def plan(client: Client, manifests: Sequence[Mapping[str, Any]], project: str) -> Plan:
    """Compares. Raises InvalidRequestError for what the site would refuse."""
    changes = client.apply(manifests, dry_run=True) if manifests else []
    wanted = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
    touched = [(one.kind, one.name) for one in changes if one.action != "unchanged"]
    scheduled = {name for kind, name in wanted if kind == "Schedule"}
    own = {job.name for job in client.jobs.list() if job.labels.get(LABEL) == project}
    present = [one for one in client.schedules.list() if one.job in own]
    return Plan(
        changes=changes,
        diffs={key: _diff(_current(client, *key), _flat(wanted[key])) for key in touched},
        # A declared schedule has the name of its job; one with another name was made by a person.
        orphans=[
            one.name for one in present if one.name == one.job and one.name not in scheduled and one.status != "paused"
        ],
        resumed=[one.name for one in present if one.name in scheduled and one.status_reason == REASON],
    )


def carry_out(client: Client, manifests: Sequence[Mapping[str, Any]], found: Plan, *, prune: bool) -> None:
    """Applies all manifests or none; then pauses what is declared no more, with `prune`, and resumes what is declared again."""
    if manifests:
        client.apply(manifests)
    for name in found.resumed:
        client.schedules.resume(name, reason="declared again by the Django project")
    for name in found.orphans if prune else ():
        client.schedules.pause(name, reason=REASON)


def _current(client: Client, kind: str, name: str) -> Mapping[str, Any]:
    try:
        found = client.jobs.get(name) if kind == "Job" else client.schedules.get(name)
    except NotFoundError:
        return {}
    return _flat(found.manifest)


def _flat(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """As the site returns a definition: metadata beside the rest, and each step with a name."""
    spec = dict(manifest["spec"])
    if "steps" in spec:
        spec["steps"] = [{"id": f"step-{number}", **step} for number, step in enumerate(spec["steps"], start=1)]
    return {**manifest["metadata"], **spec}


def _diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lines with `-` and `+` before them, with two lines around each.

    >>> _diff({"cron": "0 7 * * *"}, {"cron": "0 8 * * *"})
    [' {', '-  "cron": "0 7 * * *"', '+  "cron": "0 8 * * *"', ' }']
    """
    old, new = (json.dumps(one, indent=2, sort_keys=True).splitlines() if one else [] for one in (before, after))
    return [line for line in difflib.unified_diff(old, new, n=2, lineterm="") if line[:3] not in ("---", "+++", "@@ ")]
