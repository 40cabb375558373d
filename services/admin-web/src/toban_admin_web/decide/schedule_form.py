"""The form for a schedule: its fields are made of a manifest, and what is filled in becomes a manifest again.

A manifest has more keys than the form has fields. Those without a field are kept beside them, as JSON. A manifest that would come back as another
one has no form, so the form loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toban_admin_web.decide.definition_text import API_VERSION, SOURCE
from toban_admin_web.decide.durations import DAY, HOUR, MINUTE
from toban_admin_web.decide.json_fields import parse_json
from toban_admin_web.decide.log_text import printable, printable_json
from toban_admin_web.decide.schedule_text import WEEKDAYS, weekly_rule
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.schedule import DEFAULT_CATCH_UP_MAX, RULE_KEYS

KINDS = ("every", "hourly", "daily", "weekly", "cron")
UNITS = ("s", "m", "h", "d")
# Fields of the form that are keys of the spec under the same name, with the defaults of the manifest; a default is left out.
_PLAIN = {"job": None, "timezone": "UTC", "start": "", "end": "", "on_failure": "keep"}
_DST = {"gap": "shift", "fold": "first"}
_OWN = {*_PLAIN, *RULE_KEYS, "dst", "enabled", "payload", "catch_up"}
_DEFAULTS: dict[str, Any] = {**_PLAIN, "dst": {}, "enabled": True, "payload": {}, "catch_up": {}}
_DEFAULT_RULE = {
    "every": "5",
    "unit": "m",
    "minute": "0",
    "daily_at": "03:00",
    "weekly_at": "03:00",
    "days": "mon,tue,wed,thu,fri",
}
_NO_FIELD = "rest"
FIELDS = (
    *_PLAIN,
    *_DST,
    *_DEFAULT_RULE,
    *("name", "description", "enabled", "catch_up", "catch_up_max", "payload", "kind", "cron", _NO_FIELD),
)


def form_of(document: Mapping[str, Any]) -> dict[str, str] | None:
    """The fields as a form has them; None when the form cannot hold this manifest."""
    try:
        given = _filled(document)
        same = _compared(manifest_of(given)) == _compared(document)
    except (TobanError, LookupError, TypeError, ValueError, RecursionError, AttributeError):
        return None
    lines = (text for name, text in given.items() if name not in ("description", "payload"))
    fits = all(printable(text) == text for text in given.values()) and not any("\n" in text for text in lines)
    return given if same and fits else None


def kept_keys(given: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that have no field."""
    rest = _rest(given)
    return tuple(f"{part}.{key}" for part in ("metadata", "spec") for key in rest.get(part, {}))


def manifest_of(given: Mapping[str, str]) -> dict[str, Any]:
    """The manifest of a form. A field that is not filled in well is written as it is: the check of manifests names it.

    Raises MANIFEST_INVALID for a payload that is no JSON.
    """
    rest = _rest(given)
    metadata: dict[str, Any] = {"name": _line(given, "name")}
    if description := given.get("description", "").replace("\r\n", "\n"):
        metadata["description"] = description
    spec: dict[str, Any] = {"job": _line(given, "job"), **_rule(given)}
    spec |= {name: _line(given, name) for name, default in _PLAIN.items() if _line(given, name) not in (default, "")}
    if dst := {name: _line(given, name) for name, default in _DST.items() if _line(given, name) not in (default, "")}:
        spec["dst"] = dst
    if not given.get("enabled"):
        spec["enabled"] = False
    if catch_up := _catch_up(given):
        spec["catch_up"] = catch_up
    if payload := given.get("payload", "").strip():
        spec["payload"] = _payload(payload)
    return {
        "apiVersion": API_VERSION,
        "kind": "Schedule",
        "metadata": {**metadata, **rest.get("metadata", {})},
        "spec": {**spec, **rest.get("spec", {})},
    }


def has_details(given: Mapping[str, str]) -> bool:
    """Whether a setting that few schedules have is not its default."""
    spec = manifest_of({**given, "payload": ""})["spec"]
    return any(name in spec for name in ("dst", "start", "end", "catch_up", "on_failure"))


def _filled(document: Mapping[str, Any]) -> dict[str, str]:
    metadata, spec = document["metadata"], document["spec"]
    catch_up = _as_mapping(spec.get("catch_up", {}))
    rest = {
        "metadata": {key: value for key, value in metadata.items() if key not in ("name", "description")},
        "spec": {key: value for key, value in spec.items() if key not in _OWN},
    }
    return {
        "name": str(metadata.get("name", "")),
        "description": str(metadata.get("description", "")),
        **{name: str(spec.get(name, default)) for name, default in _PLAIN.items()},
        **{name: str(spec.get("dst", {}).get(name, default)) for name, default in _DST.items()},
        "enabled": "1" if spec.get("enabled", True) else "",
        "catch_up": str(catch_up.get("policy", "all")),
        "catch_up_max": str(catch_up.get("max", DEFAULT_CATCH_UP_MAX)),
        "payload": _json(spec["payload"], indent=2) if spec.get("payload") else "",
        **_DEFAULT_RULE,
        "cron": "",
        **_rule_fields(spec),
        _NO_FIELD: _json(rest) if rest["metadata"] or rest["spec"] else "",
    }


def _rule_fields(spec: Mapping[str, Any]) -> dict[str, str]:
    if "interval_seconds" in spec:
        return {"kind": "every", "every": str(spec["interval_seconds"]), "unit": "s"}
    if isinstance(minutes := spec.get("every_n_minutes"), int):
        unit, size = next(one for one in (("d", DAY), ("h", HOUR), ("m", MINUTE)) if minutes * MINUTE % one[1] == 0)
        return {"kind": "every", "every": str(minutes * MINUTE // size), "unit": unit}
    if "hourly_at_minute" in spec:
        return {"kind": "hourly", "minute": str(spec["hourly_at_minute"])}
    if weekly := weekly_rule(spec):
        return {"kind": "weekly", "days": ",".join(weekly[0]), "weekly_at": weekly[1]}
    kind = "cron" if "cron" in spec else "daily"
    key = "cron" if kind == "cron" else "daily_at"
    return {"kind": kind, key: str(spec.get(key, ""))}


def _rule(given: Mapping[str, str]) -> dict[str, Any]:
    kind = given.get("kind", "")
    if kind == "every":
        every, unit = _number(_line(given, "every")), given.get("unit", "m")
        if unit == "s":
            return {"interval_seconds": every}
        size = {"m": MINUTE, "h": HOUR, "d": DAY}.get(unit, MINUTE)
        return {"every_n_minutes": every * (size // MINUTE) if isinstance(every, int) else every}
    if kind == "hourly":
        return {"hourly_at_minute": _number(_line(given, "minute"))}
    if kind == "weekly":
        days = [day for day in WEEKDAYS if day in given.get("days", "").split(",")]
        return {"weekly_at": f"{_days_text(days)} {_line(given, 'weekly_at')}"}
    if kind == "cron":
        return {"cron": _line(given, "cron")}
    return {"daily_at": _line(given, "daily_at")} if kind == "daily" else {}


def _days_text(days: Sequence[str]) -> str:
    """As people write them: mon-fri, and sat,sun."""
    runs: list[list[str]] = []
    for day in days:
        follows = runs and WEEKDAYS.index(day) == WEEKDAYS.index(runs[-1][-1]) + 1
        runs = [*runs[:-1], [*runs[-1], day]] if follows else [*runs, [day]]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(run) for run in runs)


def _catch_up(given: Mapping[str, str]) -> dict[str, Any]:
    policy, most = _line(given, "catch_up") or "all", _number(_line(given, "catch_up_max") or str(DEFAULT_CATCH_UP_MAX))
    return ({"policy": policy} if policy != "all" else {}) | ({"max": most} if most != DEFAULT_CATCH_UP_MAX else {})


def _payload(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        hint = 'write an object such as {"day": "${{ slot.date }}"}, with texts in double quotes'
        message = f"{SOURCE}: spec.payload: is not JSON: {error}; {hint}"
        raise TobanError(ErrorCode.MANIFEST_INVALID, message) from None


def _rest(given: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The keys without a field. Nothing of a text that the site did not write."""
    try:
        found = parse_json(given.get(_NO_FIELD) or "{}")
        return {part: dict(found[part]) for part in ("metadata", "spec") if part in found}
    except (ValueError, TypeError, RecursionError):
        return {}


def _line(given: Mapping[str, str], name: str) -> str:
    return given.get(name, "").strip()


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 18 else text


def _as_mapping(catch_up: Any) -> Mapping[str, Any]:
    return {"policy": catch_up} if isinstance(catch_up, str) else catch_up


def _compared(document: Mapping[str, Any]) -> str:
    """Equal for manifests that mean the same: defaults left out, weekdays in their order. Raises for what JSON has not."""
    spec = dict(document["spec"])
    if weekly := weekly_rule(spec):
        spec["weekly_at"] = list(weekly)
    spec["dst"] = {key: value for key, value in spec.get("dst", {}).items() if _DST.get(key) != value}
    defaults = {"policy": "all", "max": DEFAULT_CATCH_UP_MAX}
    catch_up = _as_mapping(spec.get("catch_up", {}))
    spec["catch_up"] = {key: value for key, value in catch_up.items() if defaults.get(key) != value}
    metadata = {key: value for key, value in document["metadata"].items() if (key, value) != ("description", "")}
    kept = {key: value for key, value in spec.items() if key not in _DEFAULTS or not _same(_DEFAULTS[key], value)}
    return json.dumps({**document, "metadata": metadata, "spec": kept}, sort_keys=True, allow_nan=False)


def _same(one: Any, other: Any) -> bool:
    """Equal, and true is not 1."""
    return type(one) is type(other) and bool(one == other)


def _json(value: Any, indent: int | None = None) -> str:
    return printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
