"""Manifests: documents {apiVersion, kind, metadata, spec} read strictly into specs, with all mistakes told at once.

Every mistake names its source, its path, what is wrong and the remedy. Callers give the check of rules, so that this
package needs neither cron nor zones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_domain.manifest.fields import Fields
from toban_domain.manifest.jobs import read_job
from toban_domain.manifest.meta import read_meta
from toban_domain.manifest.problems import ManifestProblem, Problems, RuleCheck, nearest, raise_for
from toban_domain.manifest.schedules import read_schedule
from toban_domain.manifest.triggers import read_trigger
from toban_domain.schedule import ScheduleSpec

__all__ = ["Document", "Manifest", "ManifestProblem", "RuleCheck", "find_problems", "raise_for", "read_manifests"]

API_VERSION = "toban/v1"
_KINDS = ("Job", "Schedule", "EventTrigger")
_LATER_KINDS = ("Calendar",)


@dataclass(frozen=True, slots=True)
class Document:
    """One document as parsed from YAML or JSON, and where it came from: "jobs.yaml, document 2"."""

    source: str
    body: object


@dataclass(frozen=True, slots=True)
class Manifest:
    """One sound document."""

    source: str
    kind: str
    spec: JobSpec | ScheduleSpec | TriggerSpec

    @property
    def name(self) -> str:
        """The name that the document gives."""
        return self.spec.name


def read_manifests(documents: Iterable[Document], *, check_rule: RuleCheck) -> list[Manifest]:
    """The specs of all documents in their order; raises MANIFEST_INVALID or SCHEDULE_INVALID with every problem in `detail.errors`."""
    manifests, problems = find_problems(documents, check_rule=check_rule)
    raise_for(problems)
    return manifests


def find_problems(
    documents: Iterable[Document], *, check_rule: RuleCheck
) -> tuple[list[Manifest], list[ManifestProblem]]:
    """The sound documents, and the problems of the others (and between documents)."""
    manifests: list[Manifest] = []
    found: list[ManifestProblem] = []
    first: dict[tuple[str, str], str] = {}
    for document in documents:
        problems = Problems(document.source)
        manifest = _read(document, problems, check_rule)
        if manifest is not None and manifest.name:
            key = (manifest.kind, manifest.name)
            if key in first:
                problems.add(
                    "metadata.name",
                    f"{manifest.kind} {manifest.name!r} is already in {first[key]}",
                    "give each its own name",
                )
            first.setdefault(key, document.source)
        if manifest is not None and not problems.found:
            manifests.append(manifest)
        found += problems.found
    return manifests, found


def _read(document: Document, problems: Problems, check_rule: RuleCheck) -> Manifest | None:
    top = Fields(problems, "", document.body)
    if problems.found:
        return None
    version = top.text("apiVersion", required=True)
    if version and version != API_VERSION:
        top.bad("apiVersion", f"is {version!r}", f"this version reads {API_VERSION}")
    kind = _kind(top)
    if kind is None:
        return None
    meta = read_meta(top.below("metadata"))
    spec = top.below("spec")
    parsed: JobSpec | ScheduleSpec | TriggerSpec
    if kind == "Job":
        parsed = read_job(meta, spec)
    elif kind == "Schedule":
        parsed = read_schedule(meta, spec, check_rule)
    else:
        parsed = read_trigger(meta, spec)
    top.done(name="metadata", version="apiVersion", api_version="apiVersion")
    return Manifest(document.source, kind, parsed)


def _kind(top: Fields) -> str | None:
    kind = top.text("kind", required=True)
    if kind in _KINDS:
        return kind
    if kind in _LATER_KINDS:
        top.bad("kind", f"{kind} is not available in this version", f"use {' or '.join(_KINDS)}")
    elif kind:
        near = nearest(kind, _KINDS)
        top.bad("kind", f"is {kind!r}", f"did you mean {near!r}?" if near else f"use {' or '.join(_KINDS)}")
    return None
