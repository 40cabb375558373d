"""The definition of a schedule from the options of `schedule add` and `schedule set`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toban_cli.times import read_span
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.schedule import RULE_KEYS

_COUNTED = ("interval_seconds", "every_n_minutes")
_ABOUT = ("name", "description", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was given; None was not. An empty text removes a setting."""

    job: str | None = None
    every: str | None = None
    cron: str | None = None
    daily_at: str | None = None
    weekly_at: str | None = None
    hourly_at_minute: int | None = None
    timezone: str | None = None
    start: str | None = None
    end: str | None = None
    catch_up: str | None = None
    on_failure: str | None = None
    gap: str | None = None
    fold: str | None = None
    payload: Mapping[str, Any] | None = None
    description: str | None = None
    enabled: bool | None = None

    def rule(self) -> dict[str, Any]:
        """The key of the rule with its value, {} when none was given. Raises INVALID_ARGUMENT when there are several."""
        given = {
            "--every": self.every,
            "--cron": self.cron,
            "--daily-at": self.daily_at,
            "--weekly-at": self.weekly_at,
            "--hourly-at-minute": self.hourly_at_minute,
        }
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise _wrong(f"{' and '.join(named)} are {len(named)} rules; a schedule has one: leave the others out")
        if self.every is not None:
            return read_every(self.every)
        return {name[2:].replace("-", "_"): given[name] for name in named}


def new(name: str, options: Options) -> dict[str, Any]:
    """The document of a new schedule. Raises INVALID_ARGUMENT when it has no rule."""
    if not options.rule():
        raise _wrong(
            "no rule is given; use one of --every 5m, --cron '0 3 * * *', --daily-at 03:00, --weekly-at 'mon-fri 03:00', --hourly-at-minute 5"
        )
    return _document({"name": name}, options)


def changed(stored: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """The document of a stored definition changed by the given options; all else, the zone too, stays as it is."""
    return _document(stored, options)


def read_every(text: str) -> dict[str, Any]:
    """ "30s", "5m", "1h30m" as a rule. Raises INVALID_ARGUMENT."""
    seconds = read_span("--every", text)
    if seconds % 60 == 0:
        return {"every_n_minutes": seconds // 60}
    return {"interval_seconds": seconds}


def _document(stored: Mapping[str, Any], options: Options) -> dict[str, Any]:
    body = dict(stored)
    rule = options.rule()
    if rule:
        body = {key: value for key, value in body.items() if key not in RULE_KEYS} | rule
    if options.timezone and any(key in body for key in _COUNTED):
        raise _wrong(
            "--timezone has no effect here: spans (--every) are counted from the Unix epoch; leave it out, or use --daily-at or --cron"
        )
    for key in ("job", "timezone", "start", "end", "catch_up", "on_failure", "description"):
        _put(body, key, getattr(options, key))
    dst = dict(body.get("dst", {}))
    for key in ("gap", "fold"):
        _put(dst, key, getattr(options, key))
    _put(body, "dst", dst or "")
    if options.payload is not None:
        body["payload"] = dict(options.payload)
    if options.enabled is not None:
        body["enabled"] = options.enabled
    metadata = {key: body.pop(key) for key in _ABOUT if key in body}
    return {"apiVersion": "toban/v1", "kind": "Schedule", "metadata": metadata, "spec": body}


def _put(body: dict[str, Any], key: str, value: Any) -> None:
    if value == "":
        body.pop(key, None)
    elif value is not None:
        body[key] = value


def stored_spec(schedule: Any) -> dict[str, Any]:
    """The definition of a schedule of the cluster."""
    spec = json.loads(schedule.spec_json)
    if not isinstance(spec, dict):
        raise TobanError(ErrorCode.INTERNAL, f"the definition of schedule {schedule.name!r} cannot be read")
    return spec


def _wrong(message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, message)
