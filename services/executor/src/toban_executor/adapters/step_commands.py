"""What a step executes, from the message that describes it: the argv of a `python` or `django` step, and how it forks from a zygote."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

from toban_executor.adapters import django_step_runner, python_step_runner, warm_zygote
from toban_executor.decide.models import StepOrder
from toban_proto.v1 import executor_pb2

_OWN_FLAGS = ("-I", "-S")
"""Of the executor's interpreter: no PYTHON* variables, no site-packages. The job sees the standard library and its python_path, and starts faster."""


class Commands(NamedTuple):
    """The fields of a StepOrder with these names."""

    argv: tuple[str, ...]
    warm_argv: tuple[str, ...] = ()
    warm_call: tuple[str, ...] = ()


def step_order(step: executor_pb2.Step, *, allow_shell: bool) -> StepOrder:
    """One step to run."""
    commands = _commands(step, allow_shell=allow_shell)
    return StepOrder(
        type=step.type or "command",
        argv=commands.argv,
        timeout_seconds=step.timeout_seconds,
        callable=step.callable,
        id=step.id,
        # Earlier coordinators refuse steps that are not cancelable.
        cancelable=step.cancelable,
        heartbeat_seconds=step.heartbeat_seconds,
        warm_argv=commands.warm_argv,
        warm_call=commands.warm_call,
        command=step.command,
        stdin={"http": step.http_json, "container": step.container_json, "kubernetes": step.kubernetes_json}.get(
            step.type, ""
        ),
    )


def _commands(step: executor_pb2.Step, *, allow_shell: bool) -> Commands:
    if step.type == "python":
        return python_commands(step, allow_shell=allow_shell)
    if step.type == "django":
        return django_commands(step)
    return Commands(tuple(step.argv))


def python_commands(step: executor_pb2.Step, *, allow_shell: bool) -> Commands:
    """Calls `callable` ("package.module:function") with the payload. Without `allow_shell` it calls only what its own module defines."""
    origin = python_step_runner.ANY if allow_shell else python_step_runner.OWN
    folders = tuple(step.python_path)
    preload = tuple(step.preload) or (step.callable.partition(":")[0],)
    return _runs(step, python_step_runner.__file__, (origin, step.callable, *folders), (*folders, "--", *preload))


def django_commands(step: executor_pb2.Step) -> Commands:
    """Runs the management command with the payload as its options."""
    place = (step.project, step.settings)
    preload = ("modules", *step.preload) if step.preload else ("command", step.command)
    call = (*place, step.command, json.dumps(list(step.args)))
    return _runs(step, django_step_runner.__file__, call, (*place, *preload))


def _runs(step: executor_pb2.Step, runner: str, call: tuple[str, ...], prepared: tuple[str, ...]) -> Commands:
    python = (step.interpreter,) if step.interpreter else (sys.executable, *_OWN_FLAGS)
    argv = (*python, runner, *call)
    if not step.warm:
        return Commands(argv)
    return Commands(argv, (*python, warm_zygote.__file__, runner, *prepared), call)
