"""Reads the spec of `kind: Job`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toban_domain.errors import TobanError
from toban_domain.job import (
    DEFAULT_GRACE_SECONDS,
    DEFAULT_MAX_LOST,
    CancelSpec,
    ConcurrencySpec,
    JobSpec,
    SelectorSpec,
    StepSpec,
)
from toban_domain.manifest.fields import Fields
from toban_domain.manifest.logs import read_logs
from toban_domain.manifest.meta import Meta
from toban_domain.manifest.python_steps import read_callable, read_python_path
from toban_domain.manifest.retries import read_retry
from toban_domain.payload import check_payload, kind_of
from toban_domain.shell_detection import shell_reason

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DAY = 86_400
_MAX_STEPS = 50
_STEP_TYPES = ("command", "python")


def read_job(meta: Meta, spec: Fields) -> JobSpec:
    """The definition; what is wrong is in the problems of `spec`."""
    allow_shell = spec.flag("allow_shell", False)
    job = JobSpec(
        name=meta.name,
        description=meta.description,
        labels=meta.labels,
        enabled=spec.flag("enabled", True),
        steps=_steps(spec, allow_shell=allow_shell),
        default_payload=read_payload(spec, "default_payload"),
        payload_schema=_schema(spec),
        env=_env(spec),
        working_dir=_working_dir(spec),
        timeout_seconds=spec.integer("timeout_seconds", 0, high=366 * _DAY),
        retry=read_retry(spec.below("retry")),
        cancel=_cancel(spec.below("cancel")),
        concurrency=_concurrency(spec.below("concurrency")),
        priority=spec.integer("priority", 0, low=-1000, high=1000),
        selector=_selector(spec.below("selector")),
        logs=read_logs(spec.below("logs")),
        on_lease_loss=_on_lease_loss(spec),
        max_lost=spec.integer("max_lost", DEFAULT_MAX_LOST, high=1000),
        max_wait_seconds=spec.integer("max_wait_seconds", 0, high=366 * _DAY),
        skip_late_after_seconds=_skip_late(spec),
        allow_shell=allow_shell,
    )
    spec.later(
        "secrets",
        "notify",
        "idempotent",
        "repeatable",
        "schedulable",
        "lost_after_seconds",
        "scope",
        "schedule",
    )
    spec.done(
        command="steps",
        argv="steps",
        timeout="timeout_seconds",
        payload="default_payload",
        environment="env",
        cwd="working_dir",
        retries="retry",
        max_retries="retry",
        queue="selector",
        shell="allow_shell",
        log_limits="logs",
        log="logs",
    )
    return job


def read_payload(fields: Fields, key: str) -> dict[str, Any]:
    """A JSON object of at most 32 KiB."""
    value = fields.raw(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        fields.bad(key, f"must be a mapping, is {kind_of(value)}", "write `name: value` lines below it")
        return {}
    try:
        check_payload(value)
    except TobanError as error:
        fields.problems.add(fields.at(key), error.message, code=error.code)
        return {}
    except TypeError as error:
        fields.bad(key, f"cannot be written as JSON: {error}", "put dates into quotes")
        return {}
    return dict(value)


def _steps(spec: Fields, *, allow_shell: bool) -> tuple[StepSpec, ...]:
    value = spec.raw("steps")
    if not isinstance(value, list) or not value:
        spec.bad(
            "steps",
            "is missing" if value is None else "must be a list with at least one step",
            'add `steps:` with `- argv: ["echo", "hello"]`',
        )
        return ()
    if len(value) > _MAX_STEPS:
        spec.bad("steps", f"has {len(value)} steps", f"use at most {_MAX_STEPS}")
    steps = [
        _step(Fields(spec.problems, f"{spec.at('steps')}[{index}]", item), index, allow_shell=allow_shell)
        for index, item in enumerate(value)
    ]
    for index, step in enumerate(steps):
        if step.id in {before.id for before in steps[:index]}:
            spec.bad(f"steps[{index}].id", f"{step.id!r} is used twice", "give each step an id of its own")
    return tuple(steps)


def _step(fields: Fields, index: int, *, allow_shell: bool) -> StepSpec:
    kind = fields.text("type", "command", choices=("command", "python", "django", "http", "external"))
    if kind not in _STEP_TYPES:
        fields.bad("type", f"{kind!r} is not available in this version", "use `type: command` or `type: python`")
    fields.later("worker_type", "lock_ttl_seconds", "command", "args", "url")
    for key, owner in (("argv", "command"), ("callable", "python"), ("python_path", "python")):
        if fields.raw(key) is not None and kind != owner and kind in _STEP_TYPES:
            fields.bad(key, f"belongs to `type: {owner}` and not to {kind}", "take it out, or change the type")
    step = StepSpec(
        id=fields.name("id", required=False) or f"step-{index + 1}",
        name=fields.text("name"),
        type=kind if kind in _STEP_TYPES else "command",
        argv=_argv(fields, allow_shell=allow_shell) if kind == "command" else (),
        callable=read_callable(fields, allow_shell=allow_shell) if kind == "python" else "",
        python_path=read_python_path(fields) if kind == "python" else (),
        timeout_seconds=fields.integer("timeout_seconds", 0, high=366 * _DAY),
        cancelable=fields.flag("cancelable", True),
    )
    fields.done(
        run="argv", cmd="argv", exec="argv", timeout="timeout_seconds", function="callable", pythonpath="python_path"
    )
    return step


def _argv(fields: Fields, *, allow_shell: bool) -> tuple[str, ...]:
    value = fields.raw("argv")
    if isinstance(value, str):
        fields.bad(
            "argv", "must be a list, is text", f"write {value.split()!r}; nothing is split or expanded by a shell"
        )
        return ()
    if not isinstance(value, list) or not value:
        fields.bad(
            "argv",
            "is missing" if value is None else "must be a list with at least the program",
            'write argv: ["program", "argument"]',
        )
        return ()
    sound = True
    for index, word in enumerate(value):
        if not isinstance(word, str) or "\0" in word or (index == 0 and not word.strip()):
            sound = False
            fields.bad(
                f"argv[{index}]",
                "must be text that is not empty" if isinstance(word, str) else f"must be text, is {kind_of(word)}",
                f'put it into quotes: "{word}"' if isinstance(word, int | float) else "",
            )
    reason = shell_reason(value) if sound else ""
    if reason and not allow_shell:
        fields.bad(
            "argv",
            f"is a shell command ({reason})",
            "name the program itself, or set `allow_shell: true` in the spec of the job",
        )
    return tuple(str(word) for word in value)


def _schema(spec: Fields) -> dict[str, Any] | None:
    """The JSON Schema as it stands: the server compiles it."""
    value = spec.raw("payload_schema")
    if value is not None and not isinstance(value, Mapping):
        spec.bad(
            "payload_schema",
            f"must be a mapping, is {kind_of(value)}",
            "write a JSON Schema (2020-12), such as {type: object}",
        )
    return read_payload(spec, "payload_schema") if isinstance(value, Mapping) else None


def _env(spec: Fields) -> dict[str, str]:
    env = spec.texts("env", names=_ENV_NAME, what="variable")
    for name in env:
        if name.startswith("TOBAN_"):
            spec.bad(f"env.{name}", "names beginning with TOBAN_ are set by the executor", "choose another name")
    return env


def _working_dir(spec: Fields) -> str:
    value = spec.text("working_dir")
    if value and not value.startswith("/"):
        spec.bad(
            "working_dir",
            f"{value!r} is not absolute",
            "write it from / on (`toban apply -f` resolves it against the folder of the file)",
        )
    return value


def _cancel(fields: Fields) -> CancelSpec:
    spec = CancelSpec(
        supported=fields.flag("supported", True),
        mode=fields.text("mode", "kill", choices=("kill", "cooperative")),
        grace_seconds=fields.number("grace_seconds", DEFAULT_GRACE_SECONDS, high=3600),
    )
    fields.done(grace="grace_seconds")
    return spec


def _concurrency(fields: Fields) -> ConcurrencySpec:
    policy = fields.text("policy", "", choices=("allow", "forbid", "replace", "queue", "reject_same_scope"))
    if policy not in ("", "allow", "forbid"):
        fields.bad("policy", f"{policy!r} is not available in this version", "use allow or forbid")
    fields.later("limit", "dedupe_keys")
    fields.done()
    return ConcurrencySpec(policy)


def _selector(fields: Fields) -> SelectorSpec:
    labels = fields.texts("labels")
    fields.later("slots")
    fields.done()
    return SelectorSpec(labels)


def _on_lease_loss(spec: Fields) -> str:
    value = spec.text("on_lease_loss", "", choices=("kill", "freeze", "continue"))
    if value in ("freeze", "continue"):
        spec.bad("on_lease_loss", f"{value!r} is not available in this version", "use kill, or leave it out")
        return ""
    return value


def _skip_late(spec: Fields) -> int | None:
    return (
        spec.integer("skip_late_after_seconds", 0, high=366 * _DAY)
        if spec.has("skip_late_after_seconds")
        else spec.raw("skip_late_after_seconds")
    )
