"""Declarations of jobs with their schedules and triggers, as manifests; what was declared in this process."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toban.declaring import keys, rules

_KEYS = {"job": keys.JOB, "schedule": keys.SCHEDULE, "trigger": keys.TRIGGER}


class DeclarationError(ValueError):
    """What is declared cannot be; the message names the command or function, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the jobs of a project share: folder of their code, interpreter, settings module of Django, and keys of their jobs.

    `project` is the value of the label `label`, by which the jobs of a project are known on the site.
    """

    folder: str
    interpreter: str
    project: str
    settings: str = ""
    label: str = keys.LABEL
    job: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration(ABC):
    """A job, with a schedule when it has a rule, and a trigger."""

    name: str
    description: str
    payload: Mapping[str, Any]
    job: Mapping[str, Any]
    schedule: Mapping[str, Any] = field(default_factory=dict)
    trigger: Mapping[str, Any] = field(default_factory=dict)

    @property
    @abstractmethod
    def title(self) -> str:
        """As errors name it."""

    @abstractmethod
    def step(self, place: Place) -> dict[str, Any]:
        """The one step of the job."""

    def payloads(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Where a payload is given, and which."""
        yield "payload", self.payload
        for place, given in (("schedule", self.schedule), ("trigger", self.trigger)):
            payload = given.get("payload")
            # That of a trigger may be one reference to a whole object.
            if isinstance(payload, Mapping):
                yield f"the payload of `{place}`", payload

    def manifests(self, place: Place) -> list[dict[str, Any]]:
        """The job, and its schedule and trigger, which have the same name."""
        spec = keys.merged(place.job, self.job)
        metadata: dict[str, Any] = {"name": self.name, "labels": {**spec.pop("labels", {}), place.label: place.project}}
        if self.description:
            metadata["description"] = self.description
        payload = {"default_payload": dict(self.payload)} if self.payload else {}
        made = [_manifest("Job", metadata, {**payload, **spec, "steps": [self.step(place)]})]
        for kind, given in (("Schedule", self.schedule), ("EventTrigger", self.trigger)):
            if given:
                made.append(_manifest(kind, {"name": self.name}, {"job": self.name, **given}))
        return made


_declared: dict[str, Declaration] = {}


def declare(made: Declaration) -> Declaration:
    """Adds it to what is declared. Raises DeclarationError for a name that has other values."""
    if _declared.setdefault(made.name, made) != made:
        raise DeclarationError(
            f"{made.title}: the job {made.name!r} is declared twice with different values; give one of them another name"
        )
    return made


def declared() -> Sequence[Declaration]:
    """What was declared until now, by name."""
    return [_declared[name] for name in sorted(_declared)]


def check_values(title: str, given: Mapping[str, Any], *, declarer: str) -> None:
    """Raises DeclarationError for unknown keys of `job`, `schedule` and `trigger`, and for what is no dict or cannot be sent."""
    for argument, value in given.items():
        wrong = keys.problem(value or {}, _KEYS[argument], declarer) if argument in _KEYS else ""
        if not wrong and argument != "args" and not isinstance(value or {}, Mapping):
            wrong = f"must be a dict, is {type(value).__name__}"
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            wrong = wrong or f"cannot be written as JSON: {error}; give times as text, such as value.isoformat()"
        if wrong:
            raise DeclarationError(f"{title}: `{argument}` {wrong}")


def schedule_of(title: str, given: Mapping[str, Any], timezone: str, other: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a schedule but for its job; empty without a rule. Raises DeclarationError."""
    if wrong := rules.problem(given, timezone):
        raise DeclarationError(f"{title} {wrong}")
    further = {**({"timezone": timezone} if timezone else {}), **other}
    rule = {name: value for name, value in given.items() if value is not None}
    if further and not rule:
        raise DeclarationError(f"{title} has keys of a schedule without a rule; add one of {', '.join(given)}")
    return {**rule, **further}


def _manifest(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "toban/v1", "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}
