"""Which keys a project may give to its jobs, schedules and triggers, and how the keys of a job are merged with those of its project."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

LABEL = "toban-django"
"""Of jobs that `manage.py toban_sync` has made; its value is the project."""
PROJECT_LABEL = "toban-project"
"""Of jobs that `toban sync` has made."""
RULES = ("cron", "daily_at", "weekly_at", "hourly_at_minute", "every_n_minutes", "interval_seconds")
# `labels` are in the metadata of a job, all others in its `spec`.
JOB = frozenset(
    [
        "allow_shell",
        "cancel",
        "concurrency",
        "enabled",
        "env",
        "expect_success_within_seconds",
        "idempotent",
        "isolation",
        "labels",
        "lease_loss_grace_seconds",
        "logs",
        "lost_after_seconds",
        "max_lost",
        "max_wait_seconds",
        "notify",
        "on_lease_loss",
        "payload_schema",
        "priority",
        "repeatable",
        "result_schema",
        "retry",
        "schedulable",
        "secrets",
        "selector",
        "skip_late_after_seconds",
        "timeout_seconds",
        "working_dir",
    ]
)
SCHEDULE = frozenset(["catch_up", "dst", "enabled", "end", "on_failure", "payload", "scope", "scope_id", "start"])
TRIGGER = frozenset(["enabled", "event_type", "filter", "on_run_end", "payload"])
# Arguments of command_job and @job, which an error names when they are given as keys.
_STEPS = {"command_job": "the command is the first argument", "@job": "the function is the step"}
_ARGUMENTS = {
    "job": "the name is the argument name",
    "name": "this is the argument name",
    "description": "this is the argument description",
    "default_payload": "this is the argument payload",
    **{rule: f"this is the argument {rule}" for rule in (*RULES, "timezone")},
}


def problem(given: Any, known: frozenset[str], declarer: str = "command_job") -> str:
    """What is wrong with a mapping of keys, and the remedy; empty when nothing is.

    >>> problem({"timeout": 60}, JOB)
    "has 'timeout', which is no key; did you mean 'timeout_seconds'?"
    >>> problem({"cron": "@daily"}, SCHEDULE)
    "has 'cron': this is the argument cron of command_job"
    """
    if not isinstance(given, Mapping):
        return f"must be a dict, is {type(given).__name__}"
    for key in sorted(map(str, given)):
        if key in known:
            continue
        if key == "steps":
            return f"has {key!r}: {_STEPS[declarer]} of {declarer}"
        if key in _ARGUMENTS:
            argument = "this is the argument tz" if (key, declarer) == ("timezone", "@job") else _ARGUMENTS[key]
            return f"has {key!r}: {argument} of {declarer}"
        near = difflib.get_close_matches(key, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(sorted(known))}"
        return f"has {key!r}, which is no key; {remedy}"
    if known is TRIGGER:
        return _wrong_source(given)
    return _wrong_shape(given) if known is JOB else ""


def is_json(value: Any) -> bool:
    """Whether a value can be sent."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _wrong_source(trigger: Mapping[str, Any]) -> str:
    sources = [key for key in ("event_type", "on_run_end") if key in trigger]
    if len(sources) > 1:
        return "has event_type and on_run_end; give one of them"
    return "" if sources or not trigger else "has no event; give event_type, or on_run_end for ends of runs"


def _wrong_shape(job: Mapping[str, Any]) -> str:
    """Of the keys that are merged, so their shape matters here. The site checks all values."""
    for key in ("env", "labels"):
        if not isinstance(job.get(key, {}), Mapping):
            return f"has {key!r}, which must be a dict, and is {type(job[key]).__name__}"
    if LABEL in job.get("labels", {}):
        return f"has the label {LABEL!r}, which toban_sync gives; TOBAN['PROJECT'] is its value"
    if PROJECT_LABEL in job.get("labels", {}):
        return f"has the label {PROJECT_LABEL!r}, which toban sync gives; --project is its value"
    secrets = job.get("secrets", [])
    if not isinstance(secrets, Sequence) or not all(isinstance(one, Mapping) and "name" in one for one in secrets):
        return "has 'secrets', which must be a list of {'name': NAME, …}"
    return ""


def merged(project: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a job over those of its project; `env`, `labels` and `secrets` have what either names.

    >>> merged({"env": {"A": "1"}, "secrets": [{"name": "db"}], "priority": 1}, {"env": {"B": "2"}, "secrets": [{"name": "s3"}], "priority": 5})
    {'env': {'A': '1', 'B': '2'}, 'secrets': [{'name': 'db'}, {'name': 's3'}], 'priority': 5}
    """
    joined = {**project, **own}
    for key in ("env", "labels"):
        if key in project and key in own:
            joined[key] = {**project[key], **own[key]}
    if "secrets" in project and "secrets" in own:
        names = {one["name"] for one in own["secrets"]}
        joined["secrets"] = [*(one for one in project["secrets"] if one["name"] not in names), *own["secrets"]]
    return joined
