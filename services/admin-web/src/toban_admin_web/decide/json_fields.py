"""JSON values inside answers, read for a page; a value of another shape gives an empty one, never an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from toban_admin_web.decide.log_text import printable_json

MAX_SUMMARY = 200
# Percent.
LEAST_FOR_PACE = 3.0
# Longer values, such as serial numbers, are for programs.
MAX_VALUE = 32


@dataclass(frozen=True, slots=True)
class Progress:
    """The last progress that a job reported; `percentage` is 0 … 100, None without a number."""

    percentage: float | None
    summary: str
    steps: tuple[int, int] | None = None
    eta: datetime | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One check of /healthz."""

    name: str
    status: str
    values: tuple[tuple[str, str | datetime], ...]
    """(name, value) pairs; the name is empty for a single value."""


def as_object(value: Any) -> Mapping[str, Any]:
    """The value when it is an object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def parse_json(text: str) -> Any:
    """JSON as the standard has it: no NaN and no number without an end. Raises ValueError, and RecursionError for one that is nested too deeply."""
    found = json.loads(text, parse_constant=_no_constant)
    json.dumps(found, allow_nan=False)
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def indent(value: Any) -> str:
    """The value as JSON with indentation."""
    return printable_json(json.dumps(value, indent=2, ensure_ascii=False))


def parse_progress(value: Any, started_at: datetime | None = None) -> Progress | None:
    """The progress of a run; None when the job reported none. A job that names no end is expected to keep its pace."""
    data = as_object(value)
    number = data.get("percentage")
    percentage = float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None
    summary = data.get("summary")
    text = summary[:MAX_SUMMARY] if isinstance(summary, str) else ""
    if percentage is None and not text:
        return None
    shown = None if percentage is None else min(100.0, max(0.0, percentage))
    eta = _moment(data.get("eta")) or _expected_end(shown, started_at, _moment(data.get("at")))
    return Progress(shown, text, _steps(data.get("steps")), eta)


def _expected_end(percentage: float | None, started_at: datetime | None, at: datetime | None) -> datetime | None:
    """None before a part of the work is done that tells the pace."""
    if not percentage or percentage < LEAST_FOR_PACE or started_at is None or at is None or at <= started_at:
        return None
    return started_at + (at - started_at) * (100 / percentage)


def _steps(value: Any) -> tuple[int, int] | None:
    """(done, total) of the job's own units of work."""
    if not isinstance(value, dict):
        return None
    done, total = value.get("done"), value.get("total")
    return (done, total) if isinstance(done, int) and isinstance(total, int) else None


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def parse_health(value: Any) -> tuple[str, list[Check]]:
    """The status of a /healthz document and its checks; "unknown" for a malformed document."""
    data = as_object(value)
    checks = data.get("checks")
    rows = [
        Check(str(name), str(check.get("status", "")), _values(check.get("value")))
        for name, check in (checks.items() if isinstance(checks, dict) else ())
        if isinstance(check, dict)
    ]
    return str(data.get("status", "unknown")), rows


def _values(value: Any) -> tuple[tuple[str, str | datetime], ...]:
    if not isinstance(value, dict):
        return (("", _value(value)),)
    return tuple((str(name), _value(one)) for name, one in value.items() if len(str(one)) <= MAX_VALUE)


def _value(value: Any) -> str | datetime:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value + 0.0:g}"
    if isinstance(value, str):
        return _time(value) or value
    return json.dumps(value, ensure_ascii=False)


def _time(text: str) -> datetime | None:
    """An ISO 8601 time with its zone, as in health documents."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
