"""Jobs and schedules of management commands that a project declares in its modules `toban_jobs`, as manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LABEL = "toban-django"
"""Of jobs that `toban_sync` has made; its value is the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the commands are: folder of manage.py, interpreter, settings module, and the name of the project."""

    folder: str
    interpreter: str
    settings: str
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A command as a job, with a schedule when it has a rule."""

    command: str
    name: str
    description: str
    args: Sequence[str]
    warm: bool
    payload: Mapping[str, Any]
    job: Mapping[str, Any]
    schedule: Mapping[str, Any] = field(default_factory=dict)

    def manifests(self, place: Place) -> list[dict[str, Any]]:
        """The job, and its schedule, which has the same name."""
        step = {
            "type": "django",
            "command": self.command,
            "project": place.folder,
            "interpreter": place.interpreter,
            "settings": place.settings,
            **({"args": list(self.args)} if self.args else {}),
            **({"warm": True} if self.warm else {}),
        }
        metadata: dict[str, Any] = {"name": self.name, "labels": {LABEL: place.project}}
        if self.description:
            metadata["description"] = self.description
        payload = {"default_payload": dict(self.payload)} if self.payload else {}
        made = [_manifest("Job", metadata, {**payload, **self.job, "steps": [step]})]
        if self.schedule:
            made.append(_manifest("Schedule", {"name": self.name}, {"job": self.name, **self.schedule}))
        return made


_declared: dict[str, Declaration] = {}


def command_job(
    command: str,
    *,
    name: str = "",
    description: str = "",
    cron: str = "",
    timezone: str = "",
    interval_seconds: int = 0,
    args: Sequence[str] = (),
    payload: Mapping[str, Any] | None = None,
    warm: bool = False,
    job: Mapping[str, Any] | None = None,
    schedule: Mapping[str, Any] | None = None,
) -> Declaration:
    """Declares that a management command is a job, scheduled by `cron` (in `timezone`, UTC without one) or every `interval_seconds`, or by neither.

    The name is that of the command with `-` for `_`, unless given. `payload` has the options of the command. `job` and `schedule` have any other
    keys of their `spec` (docs/manifests.md). `manage.py toban_sync` applies what is declared.

    Raises ValueError for a name that was declared with other values, for both rules, and for keys that are arguments here.

    >>> command_job("send_reminders", cron="0 7 * * *", timezone="Asia/Tokyo").name
    'send-reminders'
    """
    if cron and interval_seconds:
        raise ValueError(f"command {command!r} has cron and interval_seconds; give one of the two")
    rule: dict[str, Any] = {"cron": cron} if cron else {}
    if timezone:
        rule["timezone"] = timezone
    if interval_seconds:
        rule["interval_seconds"] = interval_seconds
    if (timezone or schedule) and not (cron or interval_seconds):
        raise ValueError(f"command {command!r} has keys of a schedule without a rule; add cron or interval_seconds")
    _check_keys(command, "job", job or {}, ("steps", "default_payload"))
    _check_keys(command, "schedule", schedule or {}, ("job", "cron", "timezone", "interval_seconds"))
    made = Declaration(
        command=command,
        name=name or command.replace("_", "-"),
        description=description,
        args=tuple(args),
        warm=warm,
        payload=dict(payload or {}),
        job=dict(job or {}),
        schedule={**rule, **(schedule or {})},
    )
    if _declared.setdefault(made.name, made) != made:
        raise ValueError(
            f"the job {made.name!r} is declared twice with different values; give one of them another name"
        )
    return made


def declared() -> Sequence[Declaration]:
    """What was declared until now, by name."""
    return [_declared[name] for name in sorted(_declared)]


def _check_keys(command: str, argument: str, given: Mapping[str, Any], ours: Sequence[str]) -> None:
    if wrong := sorted(set(given) & set(ours)):
        text = f"command {command!r}: `{argument}` has {', '.join(wrong)}; what is run, and when, is given by the arguments of command_job"
        raise ValueError(text)


def _manifest(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "toban/v1", "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}
