"""What a step executes, from the body of its type: the argv of a `python` or `django` step, and how it forks from a zygote."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from toban_executor.adapters import django_step_runner, python_step_runner, warm_zygote
from toban_executor.decide.models import StepOrder
from toban_executor.decide.programs import OWN_PROGRAMS
from toban_proto.v1 import executor_pb2

_OWN_FLAGS = ("-I", "-S")
"""Of the executor's interpreter: no PYTHON* variables, no site-packages. The job sees the standard library and its python_path, and starts faster."""


class Commands(NamedTuple):
    """The fields of a StepOrder with these names."""

    argv: tuple[str, ...]
    warm_argv: tuple[str, ...] = ()
    warm_call: tuple[str, ...] = ()


def step_order(step: executor_pb2.Step, *, allow_shell: bool) -> StepOrder:
    """One step to run; it has no argv when its body cannot be read, so that it is refused as a step without a program."""
    if step.type in OWN_PROGRAMS:
        # The body may have values that are filled in for this run: nothing of it is kept.
        return _read_step(step, allow_shell=allow_shell)
    return _cached_step(step.SerializeToString(), allow_shell)


@lru_cache(maxsize=64)
def _cached_step(message: bytes, allow_shell: bool) -> StepOrder:
    """Many runs have the same step."""
    return _read_step(executor_pb2.Step.FromString(message), allow_shell=allow_shell)


def _read_step(step: executor_pb2.Step, *, allow_shell: bool) -> StepOrder:
    try:
        body = _body(step)
        commands = _commands(step.type, body, allow_shell=allow_shell)
        function, command = _text(body.get("callable", "")), _text(body.get("command", ""))
        stdin = json.dumps(body[step.type]) if step.type in OWN_PROGRAMS and step.type in body else ""
    except (ValueError, TypeError, AttributeError, RecursionError):
        commands, function, command, stdin = Commands(()), "", "", ""
    return StepOrder(
        type=step.type or "command",
        argv=commands.argv,
        timeout_seconds=step.timeout_seconds,
        callable=function,
        id=step.id,
        # Earlier coordinators refuse steps that are not cancelable.
        cancelable=step.cancelable,
        heartbeat_seconds=step.heartbeat_seconds,
        warm_argv=commands.warm_argv,
        warm_call=commands.warm_call,
        command=command,
        stdin=stdin,
    )


def _body(step: executor_pb2.Step) -> Mapping[str, Any]:
    if step.body_json:
        body: Mapping[str, Any] = json.loads(step.body_json)
        return body
    # Until release after 0.1: coordinators fill fields of their own where these have all keys.
    fields = {field.name: value for field, value in step.ListFields()}
    tree = fields.get(f"{step.type}_json")
    return {**fields, step.type: json.loads(tree)} if tree else fields


def _commands(kind: str, body: Mapping[str, Any], *, allow_shell: bool) -> Commands:
    if kind == "python":
        return python_commands(body, allow_shell=allow_shell)
    if kind == "django":
        return django_commands(body)
    return Commands(_texts(body.get("argv", ())))


def python_commands(body: Mapping[str, Any], *, allow_shell: bool) -> Commands:
    """Calls `callable` ("package.module:function") with the payload. Without `allow_shell` it calls only what its own module defines."""
    origin = python_step_runner.ANY if allow_shell else python_step_runner.OWN
    function, folders = _text(body.get("callable", "")), _texts(body.get("python_path", ()))
    preload = _texts(body.get("preload", ())) or (function.partition(":")[0],)
    return _runs(body, python_step_runner.__file__, (origin, function, *folders), (*folders, "--", *preload))


def django_commands(body: Mapping[str, Any]) -> Commands:
    """Runs the management command with the payload as its options."""
    project, settings, command = (_text(body.get(key, "")) for key in ("project", "settings", "command"))
    modules = _texts(body.get("preload", ()))
    preload = ("modules", *modules) if modules else ("command", command)
    call = (project, settings, command, json.dumps(_texts(body.get("args", ()))))
    return _runs(body, django_step_runner.__file__, call, (project, settings, *preload))


def _runs(body: Mapping[str, Any], runner: str, call: tuple[str, ...], prepared: tuple[str, ...]) -> Commands:
    interpreter = _text(body.get("interpreter", ""))
    python = (interpreter,) if interpreter else (sys.executable, *_OWN_FLAGS)
    argv = (*python, runner, *call)
    if not body.get("warm"):
        return Commands(argv)
    return Commands(argv, (*python, warm_zygote.__file__, runner, *prepared), call)


def _text(value: Any) -> str:
    """`value`, which can be an argument of a process. Raises TypeError, UnicodeEncodeError."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    value.encode()
    return value


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError("not a list")
    return tuple(map(_text, values))
