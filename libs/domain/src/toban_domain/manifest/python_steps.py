"""Reads what a step of `type: python` has of its own."""

from __future__ import annotations

import re

from toban_domain.manifest.fields import Fields
from toban_domain.payload import kind_of
from toban_domain.shell_detection import callable_reason

_CALLABLE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_MAX_CALLABLE = 256
_MAX_FOLDERS = 20
_MAX_FOLDER = 1024


def read_callable(fields: Fields, *, allow_shell: bool) -> str:
    """The name of the function, "package.module:function"."""
    value = fields.text("callable", required=True)
    if not value:
        return ""
    if len(value) > _MAX_CALLABLE or not _CALLABLE.fullmatch(value):
        hint = "write the module and the function: package.module:function"
        if value.count(".") and ":" not in value:
            hint = f"did you mean {':'.join(value.rsplit('.', 1))!r}?"
        fields.bad("callable", f"{value!r} does not name a function", hint)
        return ""
    reason = callable_reason(value)
    if reason and not allow_shell:
        fields.bad(
            "callable",
            f"is a shell command ({reason})",
            "write a function of your own, or set `allow_shell: true` in the spec of the job",
        )
    return value


def read_python_path(fields: Fields) -> tuple[str, ...]:
    """Folders, absolute: `toban apply` makes them so."""
    value = fields.raw("python_path")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _MAX_FOLDERS:
        what = f"must be a list of folders, is {kind_of(value)}" if not isinstance(value, list) else "is too long"
        fields.bad("python_path", what, f"write [.] for the folder of the file; at most {_MAX_FOLDERS} folders")
        return ()
    for index, folder in enumerate(value):
        if not isinstance(folder, str) or not folder or len(folder) > _MAX_FOLDER or "\0" in folder:
            fields.bad(f"python_path[{index}]", "must be a folder", "write its path as text")
        elif not folder.startswith("/"):
            fields.bad(
                f"python_path[{index}]",
                f"{folder!r} is not absolute",
                "write it from / on (`toban apply -f` resolves it against the folder of the file)",
            )
    return tuple(str(folder) for folder in value)
