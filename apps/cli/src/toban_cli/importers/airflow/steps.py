"""Tasks of a DAG as steps of a job: BashOperator and PythonOperator; the others are missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from toban_cli.importers.airflow.dag_files import Task
from toban_cli.importers.command_line import program_or_shell
from toban_cli.importers.names import Names
from toban_cli.importers.python_source import Source, is_json, python_step
from toban_cli.importers.result import Draft, Options

_EMPTY = ("EmptyOperator", "DummyOperator")
_BASH = "BashOperator"
_PYTHON = "PythonOperator"
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_TEMPLATE = re.compile(r"\{\{|\{%")
# Read by others than `_step`, or without an effect on the work.
_KNOWN = frozenset(
    """task_id bash_command env append_env cwd op_kwargs op_args retries retry_delay execution_timeout owner start_date end_date
    depends_on_past trigger_rule wait_for_downstream provide_context doc doc_md dag task_group retry_exponential_backoff
    max_retry_delay""".split()  # noqa: SIM905 (a list of words)
)
_MAX_RETRIES = 1000


def read_steps(
    tasks: Sequence[Task], defaults: Mapping[str, Any], source: Source, options: Options, draft: Draft
) -> None:
    """Fills steps, env, working_dir, payload and retries of the draft; `tasks` are in their order, `defaults` are default_args."""
    ids = Names("")
    steps = []
    for task in tasks:
        values = {**defaults, **task.kwargs}
        if (step := _step(task, values, source, options, draft)) is not None:
            limit = values.get("execution_timeout")
            if isinstance(limit, timedelta):
                step["timeout_seconds"] = max(1, int(limit.total_seconds()))
            steps.append({"id": ids.name(task.name, task.name), **step})
        _conditions(task, values, draft)
    draft.job["steps"] = steps
    runs = [task for task in tasks if task.operator in (_BASH, _PYTHON)]
    _surroundings([task for task in runs if task.operator == _BASH], draft)
    _payload([task for task in runs if task.operator == _PYTHON], draft)
    _retries([{**defaults, **task.kwargs} for task in runs], draft)


def _step(
    task: Task, values: Mapping[str, Any], source: Source, options: Options, draft: Draft
) -> dict[str, Any] | None:
    draft.missing += [f"task {task.name}: {problem}" for problem in task.problems]
    if task.operator in _EMPTY:
        draft.notes.append(f"task {task.name} ({task.operator}) does nothing: left out")
        return None
    if left := [name for name in task.kwargs if name not in _KNOWN]:
        draft.notes.append(f"task {task.name}: NOT carried over: {', '.join(left)}")
    if task.operator == _BASH:
        return _bash(task, values.get("bash_command"), draft)
    if task.operator == _PYTHON:
        return _python(task, source, options, draft)
    what = (
        "its function is in the DAG file, which needs Airflow: move it into a module"
        if task.operator == "@task"
        else "write a step for it"
    )
    draft.missing.append(f"task {task.name} ({task.operator}): {what}")
    return None


def _bash(task: Task, command: Any, draft: Draft) -> dict[str, Any] | None:
    if not isinstance(command, str) or not command.strip():
        draft.missing.append(f"task {task.name}: its bash_command is not written in the file")
        return None
    if _TEMPLATE.search(command):
        draft.missing.append(
            f"task {task.name}: its bash_command is a template of Jinja, which stays text here: use ${{{{ slot.date }}}} and the like"
        )
    elif command.endswith((".sh", ".bash")):
        draft.missing.append(
            f"task {task.name}: Airflow reads the file {command} as a template of Jinja: check that it has none"
        )
    made = program_or_shell(command.strip(), "/bin/bash")
    if made.allow_shell:
        draft.job["allow_shell"] = True
    return {"argv": list(made.argv)}


def _python(task: Task, source: Source, options: Options, draft: Draft) -> dict[str, Any] | None:
    function = task.functions.get("python_callable", "")
    if function in source.functions:
        draft.missing.append(
            f"task {task.name}: its function {function} is in the DAG file, which needs Airflow: move it into a module"
        )
        return None
    if not _FUNCTION.fullmatch(function):
        draft.missing.append(
            f"task {task.name}: its function {function or 'python_callable'} is not imported from a module"
        )
        return None
    words = function.split(".")
    # A class is part of what is called: module:Class.method.
    split = next((place for place, word in enumerate(words[1:-1], start=1) if word[:1].isupper()), len(words) - 1)
    return python_step(f"{'.'.join(words[:split])}:{'.'.join(words[split:])}", options)


def _conditions(task: Task, values: Mapping[str, Any], draft: Draft) -> None:
    rule = values.get("trigger_rule", "all_success")
    if rule != "all_success":
        draft.missing.append(f"task {task.name}: trigger_rule={rule}, a step runs when all before it have succeeded")
    draft.missing += [
        f"task {task.name}: {name}, the result of the run before is not looked at"
        for name in ("depends_on_past", "wait_for_downstream")
        if values.get(name) is True
    ]
    draft.notes += [
        f"task {task.name}: {name}={what} is NOT carried over: use `notify`"
        for name, what in task.functions.items()
        if name[:3] == "on_"
    ]


def _surroundings(tasks: Sequence[Task], draft: Draft) -> None:
    """Variables and folder, which all steps of a job share."""
    env: dict[str, str] = {}
    for task in tasks:
        own = task.kwargs.get("env") or {}
        for name, value in own.items() if isinstance(own, dict) else ():
            text = value if isinstance(value, str) else str(value)
            if env.setdefault(str(name), text) != text:
                draft.missing.append(
                    f"task {task.name}: env {name} differs from that of another task, and a job has one env"
                )
            if _TEMPLATE.search(text):
                draft.missing.append(f"task {task.name}: env {name} is a template of Jinja, which stays text here")
    if env:
        draft.job["env"] = env
    folders = {str(task.kwargs.get("cwd") or "") for task in tasks}
    if len(folders) > 1:
        draft.missing.append("cwd differs between its tasks, and a job has one working_dir")
    elif folders != {""} and folders:
        [draft.job["working_dir"]] = folders


def _payload(tasks: Sequence[Task], draft: Draft) -> None:
    given = [task.kwargs.get("op_kwargs") or {} for task in tasks]
    draft.missing += [
        f"task {task.name}: op_args, a payload has names: write default_payload"
        for task in tasks
        if task.kwargs.get("op_args")
    ]
    if any(one != given[0] for one in given):
        draft.missing.append("op_kwargs differ between its tasks, and all python steps get the same payload")
    elif given and given[0]:
        if not is_json(given[0]) or _TEMPLATE.search(str(given[0])):
            draft.missing.append(
                "op_kwargs have a template of Jinja or a value that is no JSON: write default_payload by hand"
            )
        else:
            draft.job["default_payload"] = given[0]


def _retries(tasks: Sequence[Mapping[str, Any]], draft: Draft) -> None:
    counts = [value if isinstance(value := task.get("retries"), int) and value > 0 else 0 for task in tasks]
    if not any(counts):
        return
    waits = [task["retry_delay"] for task in tasks if isinstance(task.get("retry_delay"), timedelta | int | float)]
    wait = waits[0] if waits else 300
    retry: dict[str, Any] = {"max_retries": min(max(counts), _MAX_RETRIES), "backoff_seconds": [_seconds(wait)]}
    if len(tasks) > 1:
        retry["from"] = "failed_step"
        draft.notes.append(
            "retries are counted for the run and begin at the failed step; Airflow counts them for each task"
        )
    if len(set(counts)) > 1 or len(set(map(str, waits))) > 1:
        draft.notes.append(
            "retries or retry_delay differ between its tasks: the most retries and the first delay are carried over"
        )
    if any(task.get("retry_exponential_backoff") for task in tasks):
        retry["backoff_seconds"] = {"initial": _seconds(wait), "multiplier": 2, "max": 86_400}
    draft.job["retry"] = retry


def _seconds(value: Any) -> float:
    return float(value.total_seconds() if isinstance(value, timedelta) else value)
