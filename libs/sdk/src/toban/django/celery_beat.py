"""Rows of django-celery-beat as `command_job(...)`, with a line for all that Toban does otherwise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from toban.django import celery_cron

COMMAND = "toban_celery_task"
CLEANUP = "celery.backend_cleanup"
_SECONDS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_LONGEST = 366 * 86_400
_KINDS = ("crontab", "interval", "clocked", "solar")

ALL_ROWS = (
    "the task runs in the process of the run: no broker, no worker, no time limits of Celery (give job={'timeout_seconds': …})",
    "retries of the task follow at once, without their countdown; job={'retry': …} has waits",
    "runs of one schedule do not overlap; job={'concurrency': {'policy': 'allow'}} lets them",
)
"""What is otherwise for each row."""

Row = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Imported:
    """What becomes of a row. `arguments` are those of command_job; `lost`: the row, or when it is due, could not be carried over."""

    title: str
    arguments: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lost: bool = False

    @property
    def lines(self) -> list[str]:
        """The report: a line for the row, and one for each thing that is otherwise."""
        given = self.arguments
        rule = "no schedule"
        if "cron" in given:
            rule = f"cron {given['cron']} {given.get('timezone', 'UTC')}"
        elif "interval_seconds" in given:
            rule = f"every {given['interval_seconds']} s"
        what = f"job {given['name']}, {rule}" if given else "left out"
        return [f"{self.title}: {what}", *(f"  {note}" for note in self.notes)]


def convert(rows: Iterable[Row], now: datetime, tasks: Collection[str] | None) -> list[Imported]:
    """One for each row, in their order.

    A row is one of PeriodicTask, whose `crontab`, `interval`, `clocked` and `solar` are rows or None; times have a zone. `tasks` are
    the names that the Celery app has; None = unknown.
    """
    names: set[str] = set()
    return [_convert(row, now, tasks, names) for row in rows]


def module_text(imported: Sequence[Imported]) -> str:
    """The text of a module `toban_jobs`, with the report as comments."""
    parts = [
        '"""From django-celery-beat, by `manage.py toban_import_celery_beat`."""\n\nfrom toban.django import command_job\n'
    ]
    for one in imported:
        comments = "".join(f"# {line}\n" for line in one.lines)
        call = ""
        if one.arguments:
            given = "".join(f"    {name}={_literal(value)},\n" for name, value in one.arguments.items())
            call = f"command_job(\n    {_literal(COMMAND)},\n{given})\n"
        parts.append(comments + call)
    return "\n".join(parts)


def _convert(row: Row, now: datetime, tasks: Collection[str] | None, names: set[str]) -> Imported:
    done = Imported(title=f"row {row['id']} {_quoted(row['name'])}, task {_quoted(row['task'])}")
    if row["task"] == CLEANUP:
        done.notes.append("Celery's own clean-up of its result backend; Toban has its own retention")
        return done
    try:
        payload = _payload(row)
    except ValueError as error:
        done.notes.append(str(error))
        done.lost = True
        return done
    name = _name(row, names)
    done.arguments = {"name": name}
    if row.get("description"):
        done.arguments["description"] = str(row["description"])
    if tasks is not None and row["task"] not in tasks:
        done.notes.append("task: the Celery app of this project has no task of this name, so its runs will fail")
    _add_rule(done, row, now)
    done.arguments["payload"] = payload
    _add_options(done, row)
    return done


def _payload(row: Row) -> dict[str, Any]:
    payload: dict[str, Any] = {"task": row["task"]}
    for column, key, kind, empty in (("args", "task_args", list, "[]"), ("kwargs", "task_kwargs", dict, "{}")):
        text = row.get(column) or empty
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, kind):
            raise ValueError(
                f"{column}: {_quoted(text)} is no JSON {'list' if kind is list else 'object'}, so Celery cannot run it"
            )
        if value:
            # A list would be the option several times.
            payload[key] = json.dumps(value, ensure_ascii=False) if kind is list else value
    return payload


def _name(row: Row, names: set[str]) -> str:
    """Of the job: lower case, unique among the rows."""
    name = re.sub(r"[^a-z0-9._-]+", "-", str(row["name"]).lower())[:100].strip("-._") or f"celery-beat-{row['id']}"
    if name in names:
        name = f"{name}-{row['id']}"
    names.add(name)
    return name


def _add_rule(done: Imported, row: Row, now: datetime) -> None:
    """The rule and its bounds, in arguments and notes."""
    kinds = [kind for kind in _KINDS if row.get(kind)]
    if len(kinds) != 1:
        _lose(done, f"rule: the row has {' and '.join(kinds) or 'none'}; Celery takes one")
        return
    [kind] = kinds
    rule = row[kind]
    if row.get("one_off") and kind != "clocked":
        at = f"`toban run start {done.arguments['name']} --at TIME`"
        done.notes.append(f"one_off: its {kind} rule is for one time, and schedules repeat; start it by {at}")
        # Celery disables the row when it has run.
        done.lost = bool(row.get("enabled", True))
        return
    if kind == "crontab":
        _add_crontab(done, rule)
    elif kind == "interval":
        _add_interval(done, rule)
    elif kind == "clocked":
        _add_clocked(done, rule, now)
    else:
        place = f"{rule['event']} at {rule['latitude']}, {rule['longitude']}"
        _lose(done, f"solar: {place}; there is no such rule, so choose a fixed time")
    if {"cron", "interval_seconds"} & set(done.arguments):
        _add_bounds(done, row, now)


def _add_crontab(done: Imported, rule: Row) -> None:
    try:
        done.arguments["cron"], note = celery_cron.convert(rule)
    except ValueError as error:
        _lose(done, f"crontab: {error}")
        return
    done.arguments["timezone"] = str(rule.get("timezone") or "UTC")
    if note:
        done.notes.append(f"crontab: {note}")


def _add_interval(done: Imported, rule: Row) -> None:
    text = f"every {rule['every']} {rule['period']}"
    if rule["period"] == "microseconds":
        seconds, rest = divmod(rule["every"], 1_000_000)
    else:
        seconds, rest = rule["every"] * _SECONDS[rule["period"]], 0
    if rest or not 0 < seconds <= _LONGEST:
        _lose(done, f"interval: {text}; give whole seconds, from 1 to {_LONGEST}")
        return
    done.arguments["interval_seconds"] = seconds
    start = "00:00 UTC of a day" if seconds % 86_400 == 0 else "multiples of the period since 1970 in UTC"
    done.notes.append(f"interval: {text} begins at {start}; Celery counts from the last run")


def _add_clocked(done: Imported, rule: Row, now: datetime) -> None:
    """A rule that has this one time: its second of its day in a schedule that lasts one second."""
    time = rule["clocked_time"].astimezone(UTC)
    if time < now:
        done.notes.append(f"clocked: {time.isoformat()} has passed")
        return
    if time.microsecond:
        time = time.replace(microsecond=0)
        done.notes.append(f"clocked: due at the full second, {time.isoformat()}")
    done.arguments["cron"] = f"{time.second} {time.minute} {time.hour} {time.day} {time.month} *"
    end = time + timedelta(seconds=1)
    done.arguments["schedule"] = {"start": time.isoformat(), "end": end.isoformat()}
    done.notes.append(f"clocked: once, at {time.isoformat()}; the schedule has no other slot between its start and end")


def _add_bounds(done: Imported, row: Row, now: datetime) -> None:
    """`start_time`, `expires` and `enabled`."""
    # Those of a clocked rule are narrower, unless the row never comes to its time.
    bounds: dict[str, Any] = done.arguments.pop("schedule", {})
    if start := row.get("start_time"):
        bounds["start"] = _outer(max, start, bounds.get("start"))
        done.notes.append(f"start_time: {start.isoformat()}, no slot before it")
    if end := row.get("expires"):
        bounds["end"] = _outer(min, end, bounds.get("end"))
        passed = "; it has passed, so there is no slot" if end <= now else ""
        done.notes.append(f"expires: {end.isoformat()}, no slot from then on{passed}")
    if not row.get("enabled", True):
        bounds["enabled"] = False
        done.notes.append("enabled: false, so the schedule is disabled")
    if bounds:
        done.arguments["schedule"] = bounds


def _outer(choose: Callable[..., datetime], bound: datetime, other: str | None) -> str:
    return choose([bound, *([datetime.fromisoformat(other)] if other else [])]).isoformat()


def _add_options(done: Imported, row: Row) -> None:
    """What a message of Celery has, and a run has not."""
    if (seconds := row.get("expire_seconds")) is not None:
        done.arguments["job"] = {"max_wait_seconds": max(1, seconds)}
        done.notes.append(f"expire_seconds: a run that waits {max(1, seconds)} s for its start is EXPIRED")
    for column, remedy in (
        ("queue", "executors are chosen by job={'selector': {'labels': …}}"),
        ("exchange", "there is no broker"),
        ("routing_key", "there is no broker"),
        ("priority", "job={'priority': …} is from -1000 to 1000, higher first"),
    ):
        if row.get(column) not in (None, ""):
            done.notes.append(f"{column}: {_quoted(row[column])} is left out; {remedy}")
    if (headers := row.get("headers") or "{}").strip() != "{}":
        done.notes.append(f"headers: {_quoted(headers)} are left out; there is no message")


def _lose(done: Imported, note: str) -> None:
    done.notes.append(note)
    done.lost = True


def _quoted(value: Any) -> str:
    """On one line, whatever a database has."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _literal(value: Any) -> str:
    """As Python.

    >>> _literal({"days": 30, "force": True, "note": 'a "b"'})
    '{"days": 30, "force": True, "note": "a \\\\"b\\\\""}'
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return repr(value)
