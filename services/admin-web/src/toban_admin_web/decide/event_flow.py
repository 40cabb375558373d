"""What events and triggers are about: what a trigger waits for, which runs it started, and the payload of a test event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.json_fields import as_object, parse_json

MAX_PAYLOAD = 32 * 1024
"""Characters of a payload in a form; coordinators have the limit in bytes."""
_MADE_KEY = re.compile(r"cli-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|site-[0-9a-f]{24}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What a trigger waits for: a type of event, or else the ends of runs of a job, or of jobs with labels."""

    event_type: str = ""
    states: tuple[str, ...] = ()
    job: str = ""
    labels: Mapping[str, str]


def cause_of(event_type: str, spec: Any) -> Cause:
    """The cause in the definition of a trigger."""
    ends = as_object(spec).get("on_run_end")
    if not isinstance(ends, dict):
        return Cause(event_type=event_type, labels={})
    labels = {str(key): str(value) for key, value in as_object(ends.get("labels")).items()}
    states = ends.get("states")
    found = tuple(str(one) for one in states) if isinstance(states, list) else ()
    return Cause(states=found, job=str(ends.get("job") or ""), labels=labels)


def last_by_trigger(runs: Iterable[Run]) -> dict[str, Run]:
    """The newest run of each trigger, from runs in the order newest first."""
    found: dict[str, Run] = {}
    for one in runs:
        if one.trigger:
            found.setdefault(one.trigger, one)
    return found


def own_key(key: str) -> str:
    """The key of an event, "" when the command or the site made it up."""
    return "" if _MADE_KEY.fullmatch(key) else key


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in a form; {} when it is empty. Raises ValueError."""
    found = parse_json(text) if text.strip() else {}
    if not isinstance(found, dict):
        raise ValueError("this is not a JSON object")
    return found
