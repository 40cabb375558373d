"""When a DAG runs: the keys of a schedule from schedule=, start_date=, end_date= and catchup=."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from toban_cli.importers.cron_text import read_cron
from toban_cli.importers.crontab.schedule_rule import TimingError
from toban_cli.importers.python_source import Called
from toban_cli.importers.result import Draft
from toban_schedule.spec import ScheduleError
from toban_schedule.zones import load_zone

_KEYS = ("schedule", "schedule_interval", "timetable")
_CRON_TIMETABLES = ("CronTriggerTimetable", "CronDataIntervalTimetable")
_DATE = ("year", "month", "day", "hour", "minute", "second")
_DATA = ("Dataset", "Asset")
_LONGEST = 366 * 86_400


def read_schedule(kwargs: Mapping[str, Any], default_zone: str, draft: Draft) -> None:
    """Adds the schedule to the draft, or why there is none. `kwargs` are those of the DAG over its default_args."""
    key = next((name for name in _KEYS if name in kwargs), "")
    if not key and any(part.partition(":")[0] in _KEYS for part in draft.missing):
        draft.untimed = "its schedule is not written in the file"
        return
    if not key:
        draft.untimed = "it has no schedule=: Airflow 2 runs it daily, Airflow 3 never"
        return
    if kwargs[key] is None:
        return
    try:
        zone, start = _date(kwargs.get("start_date"), default_zone)
        _, end = _date(kwargs.get("end_date"), zone)
        rule = _rule(kwargs[key], zone, draft)
    except TimingError as error:
        draft.untimed = str(error)
        return
    schedule = {
        **rule,
        **({"start": start} if start else {}),
        **({"end": end} if end else {}),
        **_catch_up(kwargs, draft),
    }
    if kwargs.get("is_paused_upon_creation") is True:
        schedule["enabled"] = False
    draft.schedules.append(schedule)


def _rule(value: Any, zone: str, draft: Draft) -> dict[str, Any]:
    if isinstance(value, Called) and value.short in _CRON_TIMETABLES:
        text = value.kwargs.get("cron", value.args[0] if value.args else None)
        return _rule(text if isinstance(text, str) else value.text, _zone(value.kwargs.get("timezone", zone)), draft)
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        if not 1 <= seconds <= _LONGEST or seconds != int(seconds):
            raise TimingError(f"{value} is not a whole number of seconds within 1 second and 366 days")
        draft.notes.append("Airflow counts the interval from start_date; here the seconds count from the Unix epoch")
        return {"interval_seconds": int(seconds)}
    if not isinstance(value, str) or value in ("@once", "@continuous"):
        parts = value if isinstance(value, list) else [value]
        data = any(isinstance(part, Called) and part.short.startswith(_DATA) for part in parts)
        remedy = "; let an event start the job (an EventTrigger, docs/events.md)" if data else ""
        raise TimingError(f"its schedule {value!r} is no cron expression and no timedelta{remedy}")
    rule, notes, _ = read_cron(value, both_days=False)
    draft.notes += notes
    return {**rule, "timezone": zone} if "cron" in rule and zone != "UTC" else rule


def _date(value: Any, zone: str) -> tuple[str, str]:
    """The zone of a datetime, and the time with its offset ("" = not written as a datetime)."""
    if not isinstance(value, Called) or value.short != "datetime":
        return zone, ""
    # A datetime without a zone is in Airflow's default zone, one of pendulum in UTC.
    named = value.kwargs.get("tzinfo", value.kwargs.get("tz", "UTC" if value.name.startswith("pendulum") else zone))
    own = _zone(named)
    given = {**dict(zip(_DATE, value.args, strict=False)), **value.kwargs}
    fields = {name: given[name] for name in _DATE if name in given}
    try:
        year, month, day = (fields.pop(name) for name in _DATE[:3])
        return own, datetime(year, month, day, tzinfo=load_zone(own)).replace(**fields).isoformat()
    except (KeyError, TypeError, ValueError, OverflowError):
        raise TimingError(f"{value.text} is no date") from None


def _zone(value: Any) -> str:
    name = value.args[0] if isinstance(value, Called) and value.args else value
    try:
        load_zone(name if isinstance(name, str) else "")
    except ScheduleError:
        raise TimingError(f"there is no zone {name!r}; write an IANA name") from None
    return str(name)


def _catch_up(kwargs: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    if kwargs.get("catchup") is True:
        draft.notes.append(
            "catchup=True is catch_up: all, for times that are missed from now on; earlier ones since start_date are not run"
        )
        return {"catch_up": "all"}
    if "catchup" not in kwargs:
        draft.notes.append(
            "no catchup=: Airflow 2 makes up for all missed times, Airflow 3 for none but the latest; carried over as catch_up: one"
        )
    return {"catch_up": "one"}
