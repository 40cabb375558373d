"""The steps of a job: commands, functions in Python, and work of external workers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from toban_domain.dispatches import MAX_LOCK_TTL_SECONDS, MIN_LOCK_TTL_SECONDS
from toban_domain.job import DEFAULT_LOCK_TTL_SECONDS, StepSpec
from toban_domain.payload import kind_of
from toban_domain.shell_detection import callable_reason, shell_reason
from toban_manifests.section import NotYet, Reading, Section, key, problem, problems_of, raise_problems
from toban_manifests.values import ABSOLUTE, DAY, Name, Text, is_storable

MAX_STEPS = 50
_CALLABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_MAX_CALLABLE = 256
_MAX_FOLDERS = 20
_MAX_FOLDER = 1024
_NEEDS = {"command": "argv", "python": "callable", "external": "worker_type"}
_OWNERS = {
    "argv": "command",
    "callable": "python",
    "python_path": "python",
    "worker_type": "external",
    "lock_ttl_seconds": "external",
}
_LATER_TYPES = NotYet(("django", "http"), "use `type: command`, `type: python` or `type: external`")
STEPS_HINT = 'add `steps:` with `- argv: ["echo", "hello"]`'
_ARGV_HINT = 'write argv: ["program", "argument"]'


def _read_argv(value: Any, info: ValidationInfo[Reading]) -> tuple[str, ...]:
    if isinstance(value, str):
        words = value.split()
        hint = f"write {words!r}; nothing is split or expanded by a shell" if words else _ARGV_HINT
        raise problem("must be a list, is text", hint)
    if not isinstance(value, list) or not value:
        raise problem("must be a list with at least the program", _ARGV_HINT)
    raise_problems(
        problem(
            "must be text that is not empty" if isinstance(word, str) else f"must be text, is {kind_of(word)}",
            f'put it into quotes: "{word}"' if isinstance(word, int | float) else "",
            below=f"[{index}]",
        )
        for index, word in enumerate(value)
        if not isinstance(word, str) or "\0" in word or (index == 0 and not word.strip())
    )
    reason = shell_reason(value)
    if reason and not info.context.allow_shell:
        raise problem(
            f"is a shell command ({reason})",
            "name the program itself, or set `allow_shell: true` in the spec of the job",
        )
    return tuple(value)


def _check_callable(value: str, info: ValidationInfo[Reading]) -> str:
    if len(value) > _MAX_CALLABLE or not _CALLABLE.fullmatch(value):
        hint = "write the module and the function: package.module:function"
        if value.count(".") and ":" not in value:
            hint = f"did you mean {':'.join(value.rsplit('.', 1))!r}?"
        raise problem(f"{value!r} does not name a function", hint)
    reason = callable_reason(value)
    if reason and not info.context.allow_shell:
        raise problem(
            f"is a shell command ({reason})",
            "write a function of your own, or set `allow_shell: true` in the spec of the job",
        )
    return value


def _read_python_path(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MAX_FOLDERS:
        what = f"must be a list of folders, is {kind_of(value)}" if not isinstance(value, list) else "is too long"
        raise problem(what, f"write [.] for the folder of the file; at most {_MAX_FOLDERS} folders")
    raise_problems(_folder_problems(value))
    return tuple(value)


def _folder_problems(folders: list[Any]) -> Iterator[PydanticCustomError]:
    for index, folder in enumerate(folders):
        if not isinstance(folder, str) or not folder or len(folder) > _MAX_FOLDER or "\0" in folder:
            yield problem("must be a folder", "write its path as text", below=f"[{index}]")
        elif not folder.startswith("/"):
            yield problem(f"{folder!r} is not absolute", ABSOLUTE, below=f"[{index}]")


def _keys_of(kind: str) -> dict[str, Any]:
    """In the JSON Schema: what a step of this type needs, and the keys of other types, which it does not have."""
    others = {name: False for name, owner in _OWNERS.items() if owner != kind}
    is_kind = {"properties": {"type": {"const": kind}}, **({} if kind == "command" else {"required": ["type"]})}
    return {"if": is_kind, "then": {"required": [_NEEDS[kind]], "properties": others}}


class Step(Section):
    """One step: a command, a function in Python, or work of an external worker."""

    model_config = ConfigDict(json_schema_extra={"allOf": [_keys_of(kind) for kind in _NEEDS]})

    MEANT = {
        "run": "argv",
        "cmd": "argv",
        "exec": "argv",
        "timeout": "timeout_seconds",
        "heartbeat": "heartbeat_seconds",
        "function": "callable",
        "pythonpath": "python_path",
        "queue": "worker_type",
        "lock_ttl": "lock_ttl_seconds",
    }
    LATER = ("command", "args", "url")

    argv: Annotated[
        tuple[str, ...],
        PlainValidator(_read_argv),
        WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
    ] = key(
        (),
        "program and arguments, each a text; nothing is split. Arguments may have [templates](jobs.md#templates). The program is looked for in "
        "`/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`",
        ["tar", "-czf", "a.tgz", "data"],
        type_name="list of texts",
        unset="required for `command`",
    )
    type: Annotated[Literal["command", "python", "external"], _LATER_TYPES] = key(
        "command",
        "`command` starts a program, `python` calls a function, `external` waits for a worker of yours "
        "([external-workers.md](external-workers.md)); other kinds are not available in this version",
        "command",
    )
    callable: Annotated[
        Text,
        AfterValidator(_check_callable),
        WithJsonSchema({"type": "string", "maxLength": _MAX_CALLABLE}),
    ] = key(
        "",
        "module and function, called with the payload: see Python steps below",
        "shop.report:make",
        type_name="module:function",
        unset="required for `python`",
    )
    python_path: Annotated[
        tuple[str, ...],
        PlainValidator(_read_python_path),
        WithJsonSchema({"type": "array", "items": {"type": "string"}, "maxItems": _MAX_FOLDERS}),
    ] = key(
        (),
        "of a `python` step: folders in which modules are looked for, before the standard library. Relative ones count from the folder of the "
        "YAML file",
        [".", "lib"],
        type_name="list of folders",
    )
    worker_type: Name = key(
        "",
        "of an `external` step: which workers do it; they ask for steps by this name",
        "transcode",
        type_name="name",
        unset="required for `external`",
    )
    lock_ttl_seconds: int = key(
        DEFAULT_LOCK_TTL_SECONDS,
        "of an `external` step: how long a claim is valid unless its worker extends it; then the step is offered again",
        30,
        ge=MIN_LOCK_TTL_SECONDS,
        le=MAX_LOCK_TTL_SECONDS,
    )
    id: Name = key("", "its own within the job", "pack", type_name="name", unset="`step-N`")
    name: Text = key("", "for people", "Pack the folder")
    timeout_seconds: int = key(0, "of this step; 0 = the job's alone", 30, ge=0, le=366 * DAY)
    cancelable: bool = key(
        True,
        "false: a cancel waits for the end of this step, or its timeout; no step follows. `run kill` waits for nothing",
        False,
    )
    heartbeat_seconds: int = key(
        0,
        "how long the job may be silent on its socket or in its markers ([jobs.md](jobs.md)); then it is ended as at a timeout; 0 = no limit",
        60,
        ge=0,
        le=DAY,
    )

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Iterator[PydanticCustomError]:
        """Keys of the other type of step, which are taken out, and the missing one of its own."""
        wanted = given.get("type", "command")
        known = (*_NEEDS, *_LATER_TYPES.values)
        kind = wanted if isinstance(wanted, str) and wanted in known else "command"
        for name, owner in _OWNERS.items():
            if owner != kind and given.pop(name, None) is not None and kind in _NEEDS:
                hint = "take it out, or change the type"
                yield problem(f"belongs to `type: {owner}` and not to {kind}", hint, below=f".{name}")
        if given.get("worker_type") == "":
            del given["worker_type"]
        if kind == "external" and given.pop("heartbeat_seconds", None) is not None:
            hint = "take it out; `lock_ttl_seconds` says how long the worker may be silent"
            yield problem("belongs to steps on executors and not to external", hint, below=".heartbeat_seconds")
        if kind in _NEEDS and (name := _NEEDS[kind]) not in given:
            yield problem("is missing", _ARGV_HINT if name == "argv" else f"add `{name}:`", below=f".{name}")

    def to_spec(self, index: int) -> StepSpec:
        """As the domain has it; `index` is its place in the job."""
        return StepSpec(**vars(self) | {"id": self.id or f"step-{index + 1}"})


def check_steps(value: Any, handler: ValidatorFunctionWrapHandler) -> list[Step]:
    """The steps of a job: how many, each of them, and their ids."""
    if not isinstance(value, list) or not value:
        raise problem("must be a list with at least one step", STEPS_HINT)
    found: list[PydanticCustomError | InitErrorDetails] = []
    if len(value) > MAX_STEPS:
        found.append(problem(f"has {len(value)} steps", f"use at most {MAX_STEPS}"))
    steps: list[Step] = []
    try:
        steps = handler(value)
    except ValidationError as error:
        found += problems_of(error)
    raise_problems([*found, *_used_twice(value)])
    return steps


def _used_twice(steps: list[Any]) -> Iterator[PydanticCustomError]:
    seen: set[str] = set()
    for index, step in enumerate(steps):
        given = step.get("id") if isinstance(step, Mapping) else None
        name = given if isinstance(given, str) and given and is_storable(given) else f"step-{index + 1}"
        if name in seen:
            yield problem(f"{name!r} is used twice", "give each step an id of its own", below=f"[{index}].id")
        seen.add(name)
