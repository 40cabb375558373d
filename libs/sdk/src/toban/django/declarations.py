"""Jobs and schedules of management commands that a project declares in its modules `toban_jobs`, as manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toban.django import keys, rules

TASK_COMMAND = "toban_run_task"
"""The command of jobs that run the tasks of a queue."""
_KEYS = {"job": keys.JOB, "schedule": keys.SCHEDULE, "trigger": keys.TRIGGER}


class DeclarationError(ValueError):
    """What is declared cannot be; the message names the command and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the commands of a project share: folder of manage.py, interpreter, settings module, name of the project, and keys of their jobs."""

    folder: str
    interpreter: str
    settings: str
    project: str
    job: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A command as a job, with a schedule when it has a rule, and a trigger."""

    command: str
    name: str
    description: str
    args: Sequence[str]
    warm: bool
    payload: Mapping[str, Any]
    job: Mapping[str, Any]
    schedule: Mapping[str, Any] = field(default_factory=dict)
    trigger: Mapping[str, Any] = field(default_factory=dict)

    def payloads(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Where options of the command are given, and which."""
        yield "payload", self.payload
        for place, given in (("schedule", self.schedule), ("trigger", self.trigger)):
            payload = given.get("payload")
            # That of a trigger may be one reference to a whole object.
            if isinstance(payload, Mapping):
                yield f"the payload of `{place}`", payload

    def manifests(self, place: Place) -> list[dict[str, Any]]:
        """The job, and its schedule and trigger, which have the same name."""
        step = {
            "type": "django",
            "command": self.command,
            "project": place.folder,
            "interpreter": place.interpreter,
            "settings": place.settings,
            **({"args": list(self.args)} if self.args else {}),
            **({"warm": True} if self.warm else {}),
        }
        spec = keys.merged(place.job, self.job)
        metadata: dict[str, Any] = {"name": self.name, "labels": {**spec.pop("labels", {}), keys.LABEL: place.project}}
        if self.description:
            metadata["description"] = self.description
        payload = {"default_payload": dict(self.payload)} if self.payload else {}
        made = [_manifest("Job", metadata, {**payload, **spec, "steps": [step]})]
        for kind, given in (("Schedule", self.schedule), ("EventTrigger", self.trigger)):
            if given:
                made.append(_manifest(kind, {"name": self.name}, {"job": self.name, **given}))
        return made


_declared: dict[str, Declaration] = {}


def command_job(
    command: str,
    *,
    name: str = "",
    description: str = "",
    cron: str | None = None,
    daily_at: str | None = None,
    weekly_at: str | None = None,
    hourly_at_minute: int | None = None,
    every_n_minutes: int | None = None,
    interval_seconds: int | None = None,
    timezone: str = "",
    args: Sequence[str] = (),
    payload: Mapping[str, Any] | None = None,
    warm: bool = False,
    job: Mapping[str, Any] | None = None,
    schedule: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> Declaration:
    """Declares that a management command is a job, which a schedule starts, the events of a `trigger`, or neither.

    The rules of a schedule are in `timezone`, UTC without one: `cron`, `daily_at` ("02:30"), `weekly_at` ("mon-fri 02:30"),
    `hourly_at_minute`, `every_n_minutes` and `interval_seconds`. The name is that of the command with `-` for `_`, unless given.
    `payload` has the options of the command. `job`, `schedule` and `trigger` have any other keys of their `spec` (docs/manifests.md).
    `manage.py toban_sync` applies what is declared.

    Raises DeclarationError, which names the command: for a name that was declared with other values, for two rules, a rule or zone
    that cannot be, keys that are unknown or arguments here, and values that are not JSON.

    >>> command_job("send_reminders", cron="0 7 * * *", timezone="Asia/Tokyo").name
    'send-reminders'
    """
    given_rules = {
        "cron": cron,
        "daily_at": daily_at,
        "weekly_at": weekly_at,
        "hourly_at_minute": hourly_at_minute,
        "every_n_minutes": every_n_minutes,
        "interval_seconds": interval_seconds,
    }
    if wrong := rules.problem(given_rules, timezone):
        raise DeclarationError(f"command {command!r} {wrong}")
    _check_values(command, args, {"payload": payload, "job": job, "schedule": schedule, "trigger": trigger})
    made = Declaration(
        command=command,
        name=name or command.replace("_", "-"),
        description=description,
        args=tuple(args),
        warm=warm,
        payload=dict(payload or {}),
        job=dict(job or {}),
        schedule=_schedule(command, given_rules, timezone, schedule or {}),
        trigger=dict(trigger or {}),
    )
    return declare(made)


def declare(made: Declaration) -> Declaration:
    """Adds it to what is declared. Raises DeclarationError for a name that has other values."""
    if _declared.setdefault(made.name, made) != made:
        raise DeclarationError(
            f"command {made.command!r}: the job {made.name!r} is declared twice with different values; give one of them another name"
        )
    return made


def declared() -> Sequence[Declaration]:
    """What was declared until now, by name."""
    return [_declared[name] for name in sorted(_declared)]


def _check_values(command: str, args: Sequence[str], given: Mapping[str, Any]) -> None:
    """Arguments, keys of manifests, and values that can be sent."""
    if isinstance(args, str):
        raise DeclarationError(f"command {command!r}: `args` is a text; give a list of texts, such as {args.split()!r}")
    for argument, value in given.items():
        wrong = keys.problem(value or {}, _KEYS[argument]) if argument in _KEYS else ""
        if not wrong and not isinstance(value or {}, Mapping):
            wrong = f"must be a dict, is {type(value).__name__}"
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            wrong = wrong or f"cannot be written as JSON: {error}; give times as text, such as value.isoformat()"
        if wrong:
            raise DeclarationError(f"command {command!r}: `{argument}` {wrong}")


def _schedule(command: str, given: Mapping[str, Any], timezone: str, other: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a schedule but for its job; empty without a rule."""
    further = {**({"timezone": timezone} if timezone else {}), **other}
    rule = {name: value for name, value in given.items() if value is not None}
    if further and not rule:
        names = ", ".join(given)
        raise DeclarationError(f"command {command!r} has keys of a schedule without a rule; add one of {names}")
    return {**rule, **further}


def _manifest(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "toban/v1", "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}
