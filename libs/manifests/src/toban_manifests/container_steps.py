"""What a step `type: container` runs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, PlainValidator, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator
from pydantic_core import PydanticCustomError

from toban_domain.job import GUARDED_STEPS, compact
from toban_domain.payload import kind_of
from toban_manifests.section import IfMissing, Section, key, part, problem, raise_problems
from toban_manifests.values import Env, Folder, Text

_MAX_MOUNTS = 20
_IMAGE = re.compile(r"[a-z0-9][\w.:/@-]{0,254}")
_FOLDER_SCHEMA = {"type": "string", "pattern": "^/"}


def _check_image(value: str) -> str:
    if value and not _IMAGE.fullmatch(value):
        raise problem(f"{value!r} is not the name of an image", "write such as registry.example.com/team/report:1.4")
    return value


def _check_argv(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise problem(f"must be a list, is {kind_of(value)}", 'write argv: ["report", "--day", "today"]')
    raise_problems(
        problem(f"must be text, is {kind_of(word)}", f'put it into quotes: "{word}"', below=f"[{index}]")
        for index, word in enumerate(value)
        if not isinstance(word, str) or "\0" in word
    )
    return value


def _check_path(value: str) -> str:
    if value and (not value.startswith("/") or posixpath.normpath(value) != value):
        raise problem(f"{value!r} is not an absolute path without . and ..", "write such as /srv/data")
    return value


Image = Annotated[Text, AfterValidator(_check_image), IfMissing("add `image: name:tag`")]
Argv = Annotated[list[str], PlainValidator(_check_argv), WithJsonSchema({"type": "array", "items": {"type": "string"}})]
Path = Annotated[Text, AfterValidator(_check_path), WithJsonSchema(_FOLDER_SCHEMA)]


class Mount(Section):
    """A folder or file of the executor's machine."""

    MEANT = {"path": "source", "from": "source", "to": "target", "destination": "target", "readonly": "read_only"}

    source: Path = key(..., "on the executor's machine; its SCHEDULER_CONTAINER_MOUNTS must allow it", "/srv/data")
    target: Path = key(..., "in the container", "/data")
    read_only: bool = key(True, "false: the container may write to it", False)


def _check_mounts(value: Any, handler: ValidatorFunctionWrapHandler) -> list[Mount]:
    if not isinstance(value, list) or len(value) > _MAX_MOUNTS:
        what = "is too long" if isinstance(value, list) else f"must be a list, is {kind_of(value)}"
        raise problem(what, f"write `- {{source: /srv/data, target: /data}}`; at most {_MAX_MOUNTS}")
    found: list[Mount] = handler(value)
    return found


class Limits(Section):
    """What the container may use; the engine needs the controllers for it."""

    MEANT = {"memory": "memory_mb", "cpu": "cpus"}

    memory_mb: int = key(0, "MiB of memory, without swap; 0 = no limit", 512, ge=0, le=16 << 20)
    cpus: float = key(0.0, "processors, 0.5 = half of one; 0 = no limit", 1.5, type_name="number", ge=0, le=1024.0)
    pids: int = key(0, "processes and threads; 0 = no limit", 100, ge=0, le=4_000_000)


class Container(Section):
    """An image and how it runs."""

    MEANT = {"command": "argv", "args": "argv", "cmd": "argv", "volumes": "mounts", "environment": "env"}

    image: Image = key(..., "on the executor's machine: nothing is pulled", "registry.example.com/team/report:1.4")
    argv: Argv = key(
        [],
        "arguments for the entry point of the image. Those behind the first may have [templates](jobs.md#templates)",
        ["report", "--day", "today"],
        type_name="list of texts",
        unset="those of the image",
    )
    env: Env = key({}, "variables, over those of the job. Values may have templates", {"LANG": "C.UTF-8"})
    working_dir: Folder = key("", "folder in the container", "/data", type_name="folder", unset="that of the image")
    user: Text = key("", "user, or user:group, in the container", "1000:1000", unset="that of the image")
    mounts: Annotated[list[Mount], WrapValidator(_check_mounts)] = key(
        [], "folders of the machine", [{"source": "/srv/data", "target": "/data"}], type_name="list of mounts"
    )
    network: Literal["none", "bridge"] = key(
        "none", "`none`: loopback only; `bridge`: the engine's default network", "bridge"
    )
    read_only: bool = key(False, "whether the file system of the image is read-only", True)
    limits: Limits = part(Limits, "what it may use")

    def to_spec(self) -> dict[str, Any]:
        """The JSON tree of the domain, without what is a default."""
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        mounts = [compact(vars(one), {"read_only": True}) for one in self.mounts]
        limits = compact(vars(self.limits), vars(Limits()))
        return compact({**vars(self), "mounts": mounts, "limits": limits}, {**defaults, "limits": {}})


def mixed(types: list[Any]) -> Iterator[PydanticCustomError]:
    """Steps that no executor may run together: `types` are those of the steps of a job."""
    guarded = next((kind for kind in types if kind in GUARDED_STEPS), None)
    if guarded:
        others = {"command", "python", "django", *GUARDED_STEPS} - {guarded}
        for index, kind in enumerate(types):
            if kind in others:
                yield problem(
                    f"is {kind}, beside a {guarded} step",
                    f"executors for {guarded} steps start no programs; make it a job of its own, or a {guarded} step",
                    below=f"[{index}].type",
                )
