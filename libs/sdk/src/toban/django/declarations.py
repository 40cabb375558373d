"""Jobs of management commands that a project declares in its modules `toban_jobs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban.declaring.model import Declaration, DeclarationError, Place, check_values, declare, schedule_of

TASK_COMMAND = "toban_run_task"
"""The command of jobs that run the tasks of a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDeclaration(Declaration):
    """A management command as a job."""

    command: str
    args: Sequence[str]
    warm: bool

    @property
    def title(self) -> str:
        """As errors name it."""
        return f"command {self.command!r}"

    def step(self, place: Place) -> dict[str, Any]:
        """The step, `type: django`."""
        return {
            "type": "django",
            "command": self.command,
            "project": place.folder,
            "interpreter": place.interpreter,
            "settings": place.settings,
            **({"args": list(self.args)} if self.args else {}),
            **({"warm": True} if self.warm else {}),
        }


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
) -> CommandDeclaration:
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
    title = f"command {command!r}"
    if isinstance(args, str):
        raise DeclarationError(f"{title}: `args` is a text; give a list of texts, such as {args.split()!r}")
    given = {"args": args, "payload": payload, "job": job, "schedule": schedule, "trigger": trigger}
    check_values(title, given, declarer="command_job")
    made = CommandDeclaration(
        command=command,
        name=name or command.replace("_", "-"),
        description=description,
        args=tuple(args),
        warm=warm,
        payload=dict(payload or {}),
        job=dict(job or {}),
        schedule=schedule_of(title, given_rules, timezone, schedule or {}),
        trigger=dict(trigger or {}),
    )
    declare(made)
    return made
