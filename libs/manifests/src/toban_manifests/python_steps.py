"""Keys of the steps `type: python` and `type: django`: functions, modules, commands and interpreters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from toban_domain.payload import kind_of
from toban_domain.shell_detection import callable_reason, django_reason
from toban_manifests.section import Reading, in_quotes, problem, raise_problems
from toban_manifests.values import ABSOLUTE, Folder, Text

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_CALLABLE = re.compile(rf"{_MODULE.pattern}:{_MODULE.pattern}")
_COMMAND = re.compile(r"[^\W\d]\w*")
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*")
_MAX_NAME = 256
_MAX_ITEMS = 20
_MAX_ARGS = 100
_MAX_FOLDER = 1024


def _check_callable(value: str, info: ValidationInfo[Reading]) -> str:
    if len(value) > _MAX_NAME or not _CALLABLE.fullmatch(value):
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


def _check_command(value: str, info: ValidationInfo[Reading]) -> str:
    if len(value) > _MAX_NAME or not _COMMAND.fullmatch(value):
        raise problem(
            f"{value!r} does not name a management command",
            "write its name alone: send_reminders; arguments go into `args`, options into the payload",
        )
    reason = django_reason(value)
    if reason and not info.context.allow_shell:
        raise problem(
            f"is a shell command ({reason})",
            "write a command of your own, or set `allow_shell: true` in the spec of the job",
        )
    return value


def _check_module(value: str) -> str:
    if value and (len(value) > _MAX_NAME or not _MODULE.fullmatch(value)):
        raise problem(f"{value!r} does not name a module", "write it with dots: shop.settings")
    return value


def _check_interpreter(value: str) -> str:
    if value and not _INTERPRETER.fullmatch(value.rpartition("/")[2]):
        raise problem(f"{value!r} is not a Python", "name the file: /srv/shop/.venv/bin/python")
    return value


def _read_texts(value: Any, what: str, most: int, hint: str) -> list[str]:
    if not isinstance(value, list) or len(value) > most:
        raise problem(
            f"must be a list of {what}, is {kind_of(value)}" if not isinstance(value, list) else "is too long",
            f"{hint}; at most {most}",
        )
    raise_problems(
        problem(f"must be text, is {kind_of(one)}", f"put it into quotes: {in_quotes(one)}", below=f"[{index}]")
        for index, one in enumerate(value)
        if not isinstance(one, str) or "\0" in one
    )
    return value


def _read_args(value: Any) -> list[str]:
    return _read_texts(value, "texts", _MAX_ARGS, 'write ["first", "second"]')


def _read_preload(value: Any) -> list[str]:
    modules = _read_texts(value, "modules", _MAX_ITEMS, "write [shop.models]")
    raise_problems(
        problem(f"{one!r} does not name a module", "write it with dots: shop.models", below=f"[{index}]")
        for index, one in enumerate(modules)
        if len(one) > _MAX_NAME or not _MODULE.fullmatch(one)
    )
    return modules


def _read_python_path(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > _MAX_ITEMS:
        what = f"must be a list of folders, is {kind_of(value)}" if not isinstance(value, list) else "is too long"
        raise problem(what, f"write [.] for the folder of the file; at most {_MAX_ITEMS} folders")
    raise_problems(_folder_problems(value))
    return value


def _folder_problems(folders: list[Any]) -> Iterator[PydanticCustomError]:
    for index, folder in enumerate(folders):
        if not isinstance(folder, str) or not folder or len(folder) > _MAX_FOLDER or "\0" in folder:
            yield problem("must be a folder", "write its path as text", below=f"[{index}]")
        elif not folder.startswith("/"):
            yield problem(f"{folder!r} is not absolute", ABSOLUTE, below=f"[{index}]")


_NAME_SCHEMA = WithJsonSchema({"type": "string", "maxLength": _MAX_NAME})
Callable = Annotated[Text, AfterValidator(_check_callable), _NAME_SCHEMA]
DjangoCommand = Annotated[Text, AfterValidator(_check_command), _NAME_SCHEMA]
Module = Annotated[Text, AfterValidator(_check_module), _NAME_SCHEMA]
Interpreter = Annotated[Folder, AfterValidator(_check_interpreter), _NAME_SCHEMA]


def _list_schema(most: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "array", "items": {"type": "string"}, "maxItems": most})


Arguments = Annotated[list[str], PlainValidator(_read_args), _list_schema(_MAX_ARGS)]
Modules = Annotated[list[str], PlainValidator(_read_preload), _list_schema(_MAX_ITEMS)]
PythonPath = Annotated[list[str], PlainValidator(_read_python_path), _list_schema(_MAX_ITEMS)]
