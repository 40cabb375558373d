"""Reads documents strictly into specs. All mistakes are reported at once, each with its source, its path and its remedy.

Callers give the check of rules, so that this package needs neither cron nor zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_domain.nearest import suggestion
from toban_domain.schedule import ScheduleSpec
from toban_manifests.jobs import JobManifest
from toban_manifests.problems import ManifestProblem, RuleCheck, raise_for
from toban_manifests.schedules import ScheduleManifest
from toban_manifests.section import IfMissing, Reading, Section, not_a_mapping, problem, raise_problems
from toban_manifests.triggers import EventTriggerManifest
from toban_manifests.values import ApiVersion, ManifestModel, Text, is_storable

MODELS: Mapping[str, type[ManifestModel]] = {
    "Job": JobManifest,
    "Schedule": ScheduleManifest,
    "EventTrigger": EventTriggerManifest,
}
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
        problems: list[ManifestProblem] = []
        kind, reading = _outline(document.body, check_rule)
        spec: JobSpec | ScheduleSpec | TriggerSpec | None = None
        try:
            spec = _read(document.body, kind, reading)
        except ValidationError as error:
            problems += _problems(document.source, error)
        except RecursionError:
            problems.append(ManifestProblem(document.source, "", "is nested too deeply", "remove levels of nesting"))
        name = reading.name
        if kind and name:
            if (kind, name) in first:
                message = f"{kind} {name!r} is already in {first[kind, name]}"
                problems.append(ManifestProblem(document.source, "metadata.name", message, "give each its own name"))
            first.setdefault((kind, name), document.source)
        if spec is not None and not problems:
            manifests.append(Manifest(document.source, kind, spec))
        found += problems
    return manifests, found


def _refuse_kind(value: str) -> str:
    if value in _LATER_KINDS:
        raise problem(f"{value} is not available in this version", f"use {' or '.join(MODELS)}")
    raise problem(f"is {value!r}", suggestion(value, MODELS, f"use {' or '.join(MODELS)}"))


class _Head(Section):
    """All that is checked of a document whose kind is not known; its kind is refused in any case."""

    apiVersion: ApiVersion
    kind: Annotated[Text, AfterValidator(_refuse_kind), IfMissing(f"write {' or '.join(MODELS)} after `kind:`")]


def _outline(body: object, check_rule: RuleCheck) -> tuple[str, Reading]:
    """The kind ("" unless it is known), and what validators need from elsewhere in the document."""
    top = body if isinstance(body, Mapping) else {}
    kind, metadata, spec = (top.get(key) for key in ("kind", "metadata", "spec"))
    name = metadata.get("name") if isinstance(metadata, Mapping) else ""
    return (
        kind if isinstance(kind, str) and kind in MODELS else "",
        Reading(
            check_rule,
            name=name if isinstance(name, str) and is_storable(name) else "",
            allow_shell=isinstance(spec, Mapping) and spec.get("allow_shell") is True,
        ),
    )


def _read(body: object, kind: str, reading: Reading) -> JobSpec | ScheduleSpec | TriggerSpec:
    """The spec of one document; raises ValidationError."""
    if kind:
        return MODELS[kind].model_validate(body, context=reading).to_spec()
    if not isinstance(body, Mapping):
        raise_problems([not_a_mapping(body)])
    else:
        _Head.model_validate({name: body.get(name) for name in _Head.model_fields})
    # Otherwise the document would be left out without an error.
    raise AssertionError("a document of an unknown kind passed")


def _problems(source: str, error: ValidationError) -> Iterator[ManifestProblem]:
    for one in error.errors(include_url=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in one["loc"])
        about = one["ctx"]
        place = f"{path}{about['below']}".removeprefix(".")
        yield ManifestProblem(source, place, about["message"], about["hint"], about["code"])
