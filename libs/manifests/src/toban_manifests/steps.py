"""The steps of a job: programs, functions in Python, commands of Django, HTTP requests, containers, pods, and work of external workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from toban_domain.dispatches import DEFAULT_LOCK_TTL_SECONDS, MAX_LOCK_TTL_SECONDS, MIN_LOCK_TTL_SECONDS
from toban_domain.job import StepSpec, compact
from toban_domain.payload import kind_of
from toban_domain.shell_detection import shell_reason
from toban_manifests.container_steps import Container, mixed
from toban_manifests.http_steps import Http
from toban_manifests.kubernetes_steps import Kubernetes
from toban_manifests.python_steps import (
    Arguments,
    Callable,
    DjangoCommand,
    Interpreter,
    Module,
    Modules,
    PythonPath,
)
from toban_manifests.section import Reading, Section, in_quotes, key, problem, problems_of, raise_problems
from toban_manifests.values import DAY, UNSTORABLE, Folder, Name, Text, is_storable

MAX_STEPS = 50
_NEEDS = {
    "command": ["argv"],
    "python": ["callable"],
    "django": ["command", "project", "interpreter"],
    "http": ["http"],
    "container": ["container"],
    "kubernetes": ["kubernetes"],
    "external": ["worker_type"],
}
"""The keys that each type demands."""
_OWNERS = {
    "argv": "command",
    "callable": "python",
    "python_path": "python",
    "interpreter": "python django",
    "warm": "python django",
    "preload": "python django",
    "command": "django",
    "args": "django",
    "project": "django",
    "settings": "django",
    "http": "http",
    "container": "container",
    "kubernetes": "kubernetes",
    "worker_type": "external",
    "lock_ttl_seconds": "external",
}
"""Keys that belong to some types only: those of the body of a step."""
_SILENT = {
    "http": "use http.response_timeout_seconds, or the timeout_seconds of the step",
    "external": "take it out; `lock_ttl_seconds` says how long the worker may be silent",
}
"""Types whose steps send no signs of life to the guard: what to use in place of `heartbeat_seconds`."""
STEPS_HINT = 'add `steps:` with `- argv: ["echo", "hello"]`'
_ARGV_HINT = 'write argv: ["program", "argument"]'
_NOT_EMPTY = ("project", "interpreter", "worker_type")
"""Keys whose own type allows an empty text, which counts as missing where it is demanded."""
_HINTS = {
    "argv": _ARGV_HINT,
    "callable": "add `callable:`",
    "command": "add `command:` with the name of the management command",
    "project": "add `project:` with the folder of manage.py",
    "interpreter": "add `interpreter:` with the Python that has Django: /srv/shop/.venv/bin/python",
    "http": "add `http: {url: https://…}`",
    "container": "add `container: {image: name:tag}`",
    "kubernetes": "add `kubernetes: {image: registry/name:tag}`",
    "worker_type": "add `worker_type:`",
}


def _read_argv(value: Any, info: ValidationInfo[Reading]) -> list[str]:
    if isinstance(value, str):
        words = value.split()
        hint = f"write {words!r}; nothing is split or expanded by a shell" if words else _ARGV_HINT
        raise problem("must be a list, is text", hint)
    if not isinstance(value, list) or not value:
        raise problem("must be a list with at least the program", _ARGV_HINT)
    raise_problems(
        problem(
            "must be text that is not empty, without a NUL character or a lone surrogate"
            if isinstance(word, str)
            else f"must be text, is {kind_of(word)}",
            f"put it into quotes: {in_quotes(word)}" if isinstance(word, int | float) else "",
            below=f"[{index}]",
        )
        for index, word in enumerate(value)
        if not isinstance(word, str) or UNSTORABLE.search(word) or (index == 0 and not word.strip())
    )
    reason = shell_reason(value)
    if reason and not info.context.allow_shell:
        raise problem(
            f"is a shell command ({reason})",
            "name the program itself, or set `allow_shell: true` in the spec of the job",
        )
    return value


def _foreign(kind: str) -> list[str]:
    """Keys that steps of this type do not have."""
    silent = ["heartbeat_seconds"] if kind in _SILENT else []
    return [name for name, owners in _OWNERS.items() if kind not in owners.split()] + silent


def _rules() -> list[Any]:
    """For the published schema: which keys each type demands, and which it does not have."""
    return [
        {
            "if": {"properties": {"type": {"const": kind}}, "required": [] if kind == "command" else ["type"]},
            "then": {
                "required": needs,
                "properties": dict.fromkeys(_foreign(kind), False),
            },
        }
        for kind, needs in _NEEDS.items()
    ]


class Step(Section):
    """One step of a job; its type says which keys it has."""

    model_config = ConfigDict(json_schema_extra={"allOf": _rules()})

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
        "python": "interpreter",
        "management_command": "command",
        "command_name": "command",
        "settings_module": "settings",
        "url": "http",
        "request": "http",
        "image": "container",
    }

    argv: Annotated[
        list[str],
        PlainValidator(_read_argv),
        WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
    ] = key(
        [],
        "program and arguments, each a text; nothing is split. Arguments may have [templates](jobs.md#templates). The program is looked for in "
        "`/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`",
        ["tar", "-czf", "a.tgz", "data"],
        type_name="list of texts",
        unset="required for `command`",
    )
    type: Literal["command", "python", "django", "http", "container", "kubernetes", "external"] = key(
        "command",
        "`command` starts a program, `python` calls a function, `django` runs a management command ([django.md](django.md)), "
        "`http` sends a request ([http-steps.md](http-steps.md)), `container` runs an image ([container-steps.md](container-steps.md)), "
        "`kubernetes` runs one as a Job of a cluster ([kubernetes-steps.md](kubernetes-steps.md)), "
        "`external` waits for a worker of yours ([external-workers.md](external-workers.md))",
        "command",
    )
    callable: Callable = key(
        "",
        "module and function, called with the payload: see Python steps below",
        "shop.report:make",
        type_name="module:function",
        unset="required for `python`",
    )
    python_path: PythonPath = key(
        [],
        "of a `python` step: folders in which modules are looked for, before the standard library. Relative ones count from the folder of the "
        "YAML file",
        [".", "lib"],
        type_name="list of folders",
    )
    command: DjangoCommand = key(
        "", "name of the management command", "clearsessions", type_name="name", unset="required for `django`"
    )
    args: Arguments = key(
        [],
        "arguments of the management command, as on its command line, with [templates](jobs.md#templates); the keys of the payload are its options",
        ["--verbosity", "2"],
        type_name="list of texts",
    )
    project: Folder = key(
        "",
        "of a `django` step: the folder of manage.py. A relative one counts from the folder of the YAML file",
        "shop",
        type_name="folder",
        unset="required for `django`",
    )
    settings: Module = key(
        "",
        "the settings module of a `django` step",
        "shop.settings",
        type_name="module",
        unset="`DJANGO_SETTINGS_MODULE` of `env`, else what manage.py names",
    )
    interpreter: Interpreter = key(
        "",
        "the Python of a `python` or `django` step, 3.10 or newer. A relative one counts from the folder of the YAML file",
        "/srv/shop/.venv/bin/python",
        type_name="file",
        unset="the executor's own, without packages; required for `django`",
    )
    warm: bool = key(
        False,
        "fork the step from a process that has its imports loaded: see [jobs.md](jobs.md#warm-steps)",
        True,
    )
    preload: Modules = key(
        [],
        "of a `warm` step: modules that are imported before the fork. Steps with the same ones share processes",
        ["shop.models"],
        type_name="list of modules",
        unset="the module of the function, or of the command",
    )
    http: Http | None = Field(
        None, description="of an `http` step: the request", json_schema_extra={"x-unset": "required for `http`"}
    )
    container: Container | None = Field(
        None,
        description="of a `container` step: the image and how it runs",
        json_schema_extra={"x-unset": "required for `container`"},
    )
    kubernetes: Kubernetes | None = Field(
        None,
        description="of a `kubernetes` step: the image and how its pod runs",
        json_schema_extra={"x-unset": "required for `kubernetes`"},
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
        """Keys of the other types of step, which are taken out, and the missing one of its own."""
        wanted = given.get("type", "command")
        kind = wanted if isinstance(wanted, str) and wanted in _NEEDS else "command"
        for name, owners in _OWNERS.items():
            if kind not in owners.split() and given.pop(name, None) is not None:
                types = " or ".join(f"`type: {owner}`" for owner in owners.split())
                hint = "take it out, or change the type"
                yield problem(f"belongs to {types} and not to {kind}", hint, below=f".{name}")
        if kind in _SILENT and given.pop("heartbeat_seconds", None) is not None:
            message = f"belongs to steps whose job gives signs of life, and not to {kind}"
            yield problem(message, _SILENT[kind], below=".heartbeat_seconds")
        for name in _NEEDS[kind]:
            if given.get(name) == "" and name in _NOT_EMPTY:
                del given[name]
            if name not in given:
                yield problem("is missing", _HINTS[name], below=f".{name}")
        if given.get("preload") and not given.get("warm"):
            yield problem("has no effect without `warm: true`", "add `warm: true`, or take it out", below=".preload")

    def to_spec(self, index: int) -> StepSpec:
        """As the domain has it; `index` is its place in the job."""
        common = {name: value for name, value in vars(self).items() if name not in _OWNERS}
        body = compact({name: getattr(self, name) for name in _OWNERS}, _DEFAULTS)
        body |= {name: body[name].to_spec() for name in ("http", "container", "kubernetes") if name in body}
        return StepSpec(**{**common, "id": self.id or f"step-{index + 1}"}, body=body)


_DEFAULTS: Mapping[str, Any] = {name: field.default for name, field in Step.model_fields.items()}


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
    types = [step.get("type", "command") if isinstance(step, Mapping) else None for step in value]
    raise_problems([*found, *_used_twice(value), *mixed(types)])
    return steps


def _used_twice(steps: list[Any]) -> Iterator[PydanticCustomError]:
    seen: set[str] = set()
    for index, step in enumerate(steps):
        given = step.get("id") if isinstance(step, Mapping) else None
        name = given if isinstance(given, str) and given and is_storable(given) else f"step-{index + 1}"
        if name in seen:
            yield problem(f"{name!r} is used twice", "give each step an id of its own", below=f"[{index}].id")
        seen.add(name)
