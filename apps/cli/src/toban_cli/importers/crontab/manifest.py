"""The documents of one line: a Job, and a Schedule unless the line has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toban_cli.importers import result
from toban_cli.importers.command_line import Invocation
from toban_cli.importers.result import Origin


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
    origin: Origin
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def documents(plan: Planned) -> tuple[dict[str, Any], ...]:
    """The Job, then its Schedule."""
    job: dict[str, Any] = {"steps": [{"id": "command", "argv": list(plan.invocation.argv)}]}
    if env := {**plan.env, **plan.invocation.env}:
        job["env"] = env
    if plan.working_dir:
        job["working_dir"] = plan.working_dir
    # cron starts a run whatever became of the one before.
    job["concurrency"] = {"policy": "forbid" if plan.alone else "allow"}
    if plan.invocation.allow_shell:
        job["allow_shell"] = True
    return result.documents(
        name=plan.name,
        job=job,
        schedules=[_schedule(plan)] if plan.rule else [],
        description=plan.description,
        labels=plan.labels,
        origin=plan.origin,
    )


def _schedule(plan: Planned) -> dict[str, Any]:
    spec: dict[str, Any] = dict(plan.rule)
    if "cron" in plan.rule:
        spec["timezone"] = plan.timezone
        # Where cron runs a job whose local time was left out, it does so right after the change.
        if plan.names_hours and plan.timezone != "UTC":
            spec["dst"] = {"gap": "run_after"}
    spec["catch_up"] = "skip"
    return spec
