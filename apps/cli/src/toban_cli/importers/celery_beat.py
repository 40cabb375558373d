"""Schedules of celery beat to jobs with a python step: from Python source, from JSON, and from a dump of django-celery-beat."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from toban_cli.importers.cron_text import read_cron
from toban_cli.importers.crontab.schedule_rule import TimingError
from toban_cli.importers.crontab.time_fields import FIELDS, FieldError, write_field
from toban_cli.importers.names import Names
from toban_cli.importers.python_source import (
    Called,
    NotLiteral,
    Source,
    Unreadable,
    interpreter_note,
    is_json,
    python_step,
    read_source,
    targets_of,
    text_of,
)
from toban_cli.importers.result import Draft, Entry, Imported, Options, Place, entry_of, lost
from toban_schedule.spec import ScheduleError
from toban_schedule.zones import load_zone

_NAMES = ("beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE")
_ZONES = ("timezone", "CELERY_TIMEZONE")
_ZONE_CLASSES = ("timezone", "ZoneInfo", "gettz")
_FOR_ALL = (
    "the function of the task runs in a process of its own, not in a worker: self.request is empty, self.retry does not work (use retry)",
    "beat starts a task beside one that still runs; carried over as concurrency.policy: allow (forbid keeps them apart)",
    "beat runs a task once when its times were missed; carried over as catch_up: one",
)
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_PERIODS = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1, "microseconds": 1e-6}
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_SEVEN_DAYS = re.compile(r"(1|8|15|22)-(\d\d?)")
_LONGEST = 366 * 86_400
_KNOWN = {
    "task",
    "schedule",
    "args",
    "kwargs",
    "options",
    "relative",
    "enabled",
    "description",
    "timezone",
    "one_off",
    "start_time",
    "expires",
}
# The bounds of a row as keys of the schedule.
_BOUNDS = {"start_time": "start", "expires": "end"}


@dataclass(frozen=True, slots=True)
class _Item:
    """One entry of a schedule: its name and its keys, or why they are not known.

    `unread_zone` is the timezone of its file as an expression, when it is not written there.
    """

    name: str
    keys: Mapping[str, Any]
    problem: str = ""
    unread_zone: str = ""


def convert(content: bytes, file: str, options: Options) -> Imported:
    """An entry for each task; raises Unreadable for what is neither Python nor JSON."""
    source: Source | None = None
    zone = unread = ""
    if content.lstrip()[:1] in (b"{", b"["):
        items = list(_from_json(content))
    else:
        source = read_source(content)
        items = list(_from_source(source))
        zone, unread = _zone_of(source)
    names = Names(options.prefix)
    if unread:
        items = [replace(item, unread_zone=unread) for item in items]
    entries = [_entry(item, file, zone, source, options, names) for item in items]
    why = f"times without a zone are local times of {zone}, the timezone of the file" if zone else options.zone_note
    return Imported(
        entries=entries,
        notes=[] if entries else [f"{file}: there is no {', '.join(_NAMES)} in it"],
        for_all=[*_FOR_ALL, why, *interpreter_note(options)],
        counted=("task", "tasks"),
    )


def _from_source(source: Source) -> Iterator[_Item]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield from _from_call(node, source)
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else None
        for target in targets_of(node) if value is not None else ():
            assert value is not None
            if _named(target) in _NAMES:
                yield from _from_mapping(value, source)
            elif isinstance(target, ast.Subscript) and _named(target.value) in _NAMES:
                yield _item(target.slice, value, source)


def _from_call(node: ast.Call, source: Source) -> Iterator[_Item]:
    function = node.func
    if not isinstance(function, ast.Attribute):
        return
    if function.attr == "add_periodic_task":
        yield _Item(
            text_of(node), {}, "add_periodic_task is called when the program starts: write the task into beat_schedule"
        )
    if function.attr == "update":
        if _named(function.value) in _NAMES:
            for item in node.args:
                yield from _from_mapping(item, source)
        for name, value in _updates(node):
            if name in _NAMES:
                yield from _from_mapping(value, source)


def _from_mapping(node: ast.expr, source: Source, depth: int = 0) -> Iterator[_Item]:
    if isinstance(node, ast.Name) and node.id in source.constants and depth < 10:
        yield from _from_mapping(source.constants[node.id], source, depth + 1)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                yield from _from_mapping(value, source, depth + 1)
            else:
                yield _item(key, value, source)
    else:
        yield _Item(
            text_of(node), {}, "the schedule is no literal dictionary, and the file is not executed: write it out"
        )


def _item(key: ast.expr, value: ast.expr, source: Source) -> _Item:
    name = str(key.value) if isinstance(key, ast.Constant) else text_of(key)
    try:
        keys = source.value(value)
    except NotLiteral as error:
        return _Item(
            name, {}, f"{error} has no value that is written in the file, and the file is not executed: write the value"
        )
    if not isinstance(keys, dict):
        return _Item(name, {}, f"{text_of(value)} is no dictionary with a task and a schedule")
    return _Item(name, keys)


def _named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _zone_of(source: Source) -> tuple[str, str]:
    """The timezone of the file, and the text of the last one that is not written in it; "" for none."""
    found, unread = "", ""
    for name, node in _settings(source):
        if name not in _ZONES:
            continue
        try:
            value = source.value(node)
        except NotLiteral:
            value = node
        if isinstance(value, Called) and value.short in _ZONE_CLASSES and value.args:
            value = value.args[0]
        if isinstance(value, str):
            found, unread = value, ""
        elif value is not None:
            found, unread = "", text_of(node)
    return found, unread


def _settings(source: Source) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of the assignments of the file, and of its calls of update()."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in targets_of(node):
                yield _named(target), node.value
        elif isinstance(node, ast.Call) and _named(node.func) == "update":
            yield from _updates(node)


def _updates(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Names and values that a call of update() gives by keyword or in a dictionary."""
    yield from ((keyword.arg or "", keyword.value) for keyword in call.keywords)
    for item in call.args:
        pairs = zip(item.keys, item.values, strict=True) if isinstance(item, ast.Dict) else ()
        yield from ((str(key.value), value) for key, value in pairs if isinstance(key, ast.Constant))


def _from_json(content: bytes) -> Iterator[_Item]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON ({error})") from None
    if isinstance(body, list):
        yield from _from_dump(body)
    for name, keys in body.items() if isinstance(body, dict) else ():
        if not isinstance(keys, dict):
            yield _Item(name, {}, f"{keys!r} is no object with a task and a schedule")
            continue
        schedule = keys.get("schedule")
        if isinstance(schedule, dict):
            keys = {**keys, "schedule": Called("crontab", (), schedule, str(schedule))}
        yield _Item(name, keys)


def _from_dump(rows: list[Any]) -> Iterator[_Item]:
    """`manage.py dumpdata django_celery_beat`."""
    models: dict[str, dict[Any, dict[str, Any]]] = {}
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("fields"), dict) and isinstance(row.get("pk"), int | str):
            models.setdefault(str(row.get("model")).rpartition(".")[2], {})[row["pk"]] = row["fields"]
    for fields in models.get("periodictask", {}).values():
        crontab = models.get("crontabschedule", {}).get(_key(fields, "crontab"), {})
        keys = {
            "task": fields.get("task"),
            "schedule": _dumped_schedule(
                fields, crontab, models.get("intervalschedule", {}).get(_key(fields, "interval"), {})
            ),
            "args": _loaded(fields.get("args"), []),
            "kwargs": _loaded(fields.get("kwargs"), {}),
            "options": {
                name: fields[name] for name in ("queue", "exchange", "routing_key", "priority") if fields.get(name)
            },
            **{
                name: fields[name]
                for name in ("enabled", "description", "one_off", *_BOUNDS)
                if fields.get(name) is not None
            },
        }
        if expires := fields.get("expire_seconds"):
            keys["options"]["expires"] = expires
        if fields.get("headers") not in (None, "", "{}"):
            keys["options"]["headers"] = fields["headers"]
        if crontab.get("timezone"):
            keys["timezone"] = crontab["timezone"]
        yield _Item(str(fields.get("name")), keys)


def _key(fields: Mapping[str, Any], name: str) -> int | str | None:
    value = fields.get(name)
    return value if isinstance(value, int | str) else None


def _dumped_schedule(fields: Mapping[str, Any], crontab: Mapping[str, Any], interval: Mapping[str, Any]) -> Any:
    if crontab:
        picked = {name: crontab[name] for name in _FIELDS if name in crontab}
        return Called("crontab", (), picked, "crontab")
    every, period = interval.get("every"), _PERIODS.get(str(interval.get("period")))
    if isinstance(every, int) and period:
        return every * period
    kind = next((name for name in ("solar", "clocked") if fields.get(name)), "")
    return Called(kind, (), {}, kind) if kind else None


def _loaded(text: Any, default: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) and text.strip() else text or default
    except ValueError:
        return text


def _entry(item: _Item, file: str, zone: str, source: Source | None, options: Options, names: Names) -> Entry:
    task = item.keys.get("task")
    place = Place("task", item.name, file, task if isinstance(task, str) else "")
    if item.problem:
        return lost(item.problem, place)
    if not isinstance(task, str) or not _FUNCTION.fullmatch(task):
        return lost(f"its task {task!r} is no dotted path to a function: write module.function", place)
    if task.startswith("celery."):
        return lost(f"{task} is a task of Celery itself, which only a worker of Celery runs", place)
    module, _, function = task.rpartition(".")
    draft = Draft(
        name=names.name(item.name, task),
        job={"steps": [{"id": "task", **python_step(f"{module}:{function}", options)}]},
        description=str(item.keys.get("description") or ""),
    )
    _payload(item.keys, function, source, draft)
    _schedule(item.keys, zone or options.timezone, draft)
    if item.unread_zone and not item.keys.get("timezone") and any("cron" in one for one in draft.schedules):
        draft.missing.append(
            f"the timezone of the file is {item.unread_zone}, which has no value that is written in it: write `timezone`"
        )
    draft.job["concurrency"] = {"policy": "allow"}
    _options(item.keys.get("options") or {}, draft)
    if left := [str(key) for key in item.keys if key not in _KNOWN]:
        draft.notes.append(f"NOT carried over: {', '.join(left)}")
    return entry_of(draft, place, options.origin_of("celery-beat", file))


def _payload(keys: Mapping[str, Any], function: str, source: Source | None, draft: Draft) -> None:
    args, kwargs = keys.get("args") or [], keys.get("kwargs") or {}
    if not isinstance(args, list) or not isinstance(kwargs, dict) or not is_json(args) or not is_json(kwargs):
        draft.missing.append("its arguments cannot be written as JSON: write default_payload by hand")
        return
    known = source.functions.get(function) if source else None
    if args and known is not None:
        names = [arg.arg for arg in (*known.args.posonlyargs, *known.args.args)]
        names = names[1:] if names[:1] == ["self"] else names
        if len(names) >= len(args):
            kwargs, args = {**dict(zip(names, args, strict=False)), **kwargs}, []
    if args:
        draft.missing.append(
            f"its positional arguments {json.dumps(args)}: a payload has names; write them as default_payload"
        )
    if kwargs:
        draft.job["default_payload"] = kwargs


def _schedule(keys: Mapping[str, Any], zone: str, draft: Draft) -> None:
    rule: dict[str, Any] = {}
    try:
        rule = _rule(keys.get("schedule"), draft)
    except TimingError as error:
        draft.untimed = str(error)
    if keys.get("one_off"):
        draft.untimed = draft.untimed or "one_off runs once: start it with `toban run start --at`"
    if draft.untimed:
        return
    zone = str(keys.get("timezone") or zone)
    if "cron" in rule and zone != "UTC":
        try:
            load_zone(zone)
        except ScheduleError as error:
            draft.untimed = f"there is no zone {zone!r} ({error.hint})"
            return
        rule["timezone"] = zone
    if keys.get("relative"):
        draft.notes.append(
            "relative: true rounds to the unit of the interval; here the seconds count from the Unix epoch"
        )
    for name, bound in _BOUNDS.items():
        if value := keys.get(name):
            if time := _time(value):
                rule[bound] = time
            else:
                what = value.text if isinstance(value, Called) else value
                draft.missing.append(f"{name} {what} is no date and time with a zone: write `{bound}` of the schedule")
    off = {"enabled": False} if keys.get("enabled") is False else {}
    draft.schedules.append({**rule, "catch_up": "one", **off})


def _time(value: Any) -> str:
    """A date and time with a zone, as in a dump; "" for others."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        time = None
    return time.isoformat() if time is not None and time.tzinfo is not None else ""


def _rule(schedule: Any, draft: Draft) -> dict[str, Any]:
    if isinstance(schedule, Called) and schedule.short == "crontab":
        return _crontab(schedule, draft)
    if isinstance(schedule, Called) and schedule.short == "schedule":
        return _rule(schedule.kwargs.get("run_every", schedule.args[0] if schedule.args else None), draft)
    if isinstance(schedule, Called):
        raise TimingError(
            f"{schedule.text} is no time of a schedule; only crontab, schedule, timedelta and seconds are"
        )
    seconds = schedule.total_seconds() if isinstance(schedule, timedelta) else schedule
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TimingError(f"its schedule {seconds!r} is neither a crontab nor a number of seconds")
    if not 1 <= seconds <= _LONGEST or seconds != int(seconds):
        raise TimingError(f"{seconds:g} s is not a whole number of seconds within 1 second and 366 days")
    draft.notes.append("beat counts the interval from the run before; here the seconds count from the Unix epoch")
    return {"interval_seconds": int(seconds)}


def _crontab(crontab: Called, draft: Draft) -> dict[str, Any]:
    if len(crontab.args) > 2 or (extra := set(crontab.kwargs) - set(_FIELDS)):
        what = "more than two positional fields" if len(crontab.args) > 2 else ", ".join(sorted(extra))
        raise TimingError(f"{crontab.text} has {what}: write the fields by name")
    given = {**dict(zip(_FIELDS, crontab.args, strict=False)), **crontab.kwargs}
    fields = [_field(given.get(name, "*")) for name in _FIELDS]
    if nth := _nth_weekdays(fields[2], fields[4]):
        rule, notes, _ = read_cron(" ".join((*fields[:2], "*", *fields[3:])))
        rule = {"cron": " ".join((*str(rule["cron"]).split()[:4], nth))}
        notes.append(f"day_of_month {fields[2]} with day_of_week {fields[4]} is {nth}")
    else:
        rule, notes, _ = read_cron(" ".join(fields), both_days=True)
    draft.notes += [note for note in notes if "spelled out" not in note]
    return rule


def _nth_weekdays(days: str, weekdays: str) -> str:
    """The weekdays of the first, second, … seven days of a month: 1#1 for days 1-7 and mon; "" for other days."""
    found = _SEVEN_DAYS.fullmatch(days)
    if found is None or int(found[2]) != int(found[1]) + 6 or "*" in weekdays:
        return ""
    try:
        text = write_field(FIELDS[4], weekdays, lambda _what, _size: 0).text
    except FieldError as error:
        raise TimingError(str(error)) from None
    names: set[int] = set()
    for span, _, step in (item.partition("/") for item in text.split(",")):
        begin, _, end = span.partition("-")
        names |= {day % 7 for day in range(int(begin), int(end or begin) + 1, int(step or 1))}
    return ",".join(f"{day}#{(int(found[1]) + 6) // 7}" for day in sorted(names))


def _field(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or "?"
    return re.sub(r"\s+", "", str(value)) or "*"


def _options(given: Any, draft: Draft) -> None:
    for name, value in given.items() if isinstance(given, dict) else ():
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= _LONGEST
        if name == "expires" and number:
            # Celery counts from the message, and not from the time of the schedule.
            draft.job["max_wait_seconds"] = math.ceil(seconds)
        elif name == "expires":
            what = value.text if isinstance(value, Called) else value
            draft.missing.append(f"option expires {what} is no number of seconds: write `end` of the schedule")
        elif name == "time_limit" and number:
            draft.job["timeout_seconds"] = math.ceil(seconds)
        elif name in ("queue", "exchange", "routing_key"):
            draft.labels = {**draft.labels, f"celery/{name}": str(value)}
            draft.notes.append(f"{name} {value} is kept as a label: choose executors with selector.labels")
        elif name == "priority":
            draft.notes.append(
                f"priority {value} is NOT carried over, since its direction depends on the broker; here higher goes first"
            )
        else:
            draft.notes.append(f"option {name} is NOT carried over")
