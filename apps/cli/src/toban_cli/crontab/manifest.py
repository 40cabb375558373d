"""The documents of one line: a Job, and a Schedule unless the line has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toban_cli.crontab.command import Invocation

_API = "toban/v1"
ORIGIN_LABEL, FROM_CRONTAB = "origin", "crontab"
# Which crontab: its machine and path.
SOURCE_LABEL = "crontab"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The content of a line, ready to be written. `rule` {} = no schedule; `origin` names the crontab; `alone` = no second run beside the first."""

    name: str
    invocation: Invocation
    rule: Mapping[str, Any]
    timezone: str
    names_hours: bool
    alone: bool
    working_dir: str = ""
    description: str = ""
    origin: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def documents(plan: Planned) -> list[dict[str, Any]]:
    """The Job, then its Schedule."""
    metadata = _metadata(plan)
    job: dict[str, Any] = {"steps": [{"id": "command", "argv": list(plan.invocation.argv)}]}
    if env := {**plan.env, **plan.invocation.env}:
        job["env"] = env
    if plan.working_dir:
        job["working_dir"] = plan.working_dir
    # cron starts a run whatever became of the one before.
    job["concurrency"] = {"policy": "forbid" if plan.alone else "allow"}
    if plan.invocation.allow_shell:
        job["allow_shell"] = True
    made = [{"apiVersion": _API, "kind": "Job", "metadata": metadata, "spec": job}]
    if plan.rule:
        made.append({"apiVersion": _API, "kind": "Schedule", "metadata": metadata, "spec": _schedule(plan)})
    return made


def _metadata(plan: Planned) -> dict[str, Any]:
    origin = {ORIGIN_LABEL: FROM_CRONTAB, **({SOURCE_LABEL: plan.origin} if plan.origin else {})}
    described = {"description": plan.description} if plan.description else {}
    return {"name": plan.name, **described, "labels": {**plan.labels, **origin}}


def _schedule(plan: Planned) -> dict[str, Any]:
    spec: dict[str, Any] = {"job": plan.name, **plan.rule}
    if "cron" in plan.rule:
        spec["timezone"] = plan.timezone
        # Where cron runs a job whose local time was left out, it does so right after the change.
        if plan.names_hours and plan.timezone != "UTC":
            spec["dst"] = {"gap": "run_after"}
    spec["catch_up"] = "skip"
    return spec
