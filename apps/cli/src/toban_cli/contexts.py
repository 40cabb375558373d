"""Sites that this person uses, by name: ~/.config/toban/contexts.toml, a file of mode 0600 because it holds API tokens."""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from toban.client.target import contexts_path, read_contexts
from toban.errors import ConfigError
from toban_domain.errors import ErrorCode, TobanError

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`url` is the address of a site. `token_id` is the number of a token that `toban login` made; 0 = it was given."""

    url: str
    token: str = field(default="", repr=False)
    token_id: int = 0
    user: str = ""
    ca_file: str = ""
    """PEM certificates of the CA of the site; "" = those that the system trusts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """All contexts, and the name of the one that commands use.

    `stacks` has the folder of the stack that has made a context, by name. It is beside the contexts in the file, because older releases
    refuse unknown keys of a context.
    """

    current: str = ""
    named: Mapping[str, Context] = field(default_factory=dict)
    stacks: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Raises NOT_FOUND with the known names."""
        if name not in self.named:
            known = f"there are {', '.join(sorted(self.named))}" if self.named else "`toban login URL` makes one"
            raise TobanError(ErrorCode.NOT_FOUND, f"there is no context {name!r}; {known}")
        return self.named[name]

    def with_one(self, name: str, context: Context, *, current: bool, stack: str = "") -> Contexts:
        """With this context in place of one of that name, made by `stack`. The same context again keeps its stack."""
        stack = stack or (self.stacks.get(name, "") if context == self.named.get(name) else "")
        stacks = {**_but(self.stacks, name), **({name: stack} if stack else {})}
        named = {**self.named, name: context}
        return Contexts(named=named, stacks=stacks, current=name if current else self.current)

    def without(self, name: str) -> Contexts:
        """Without a context. Raises NOT_FOUND."""
        self.get(name)
        current = "" if self.current == name else self.current
        return Contexts(named=_but(self.named, name), stacks=_but(self.stacks, name), current=current)


def _but(given: Mapping[str, T], name: str) -> dict[str, T]:
    return {other: value for other, value in given.items() if other != name}


_KEYS = tuple(Context.__dataclass_fields__)


class ContextFile:
    """contexts.toml of the person whose environment this is."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.path = contexts_path(environ)

    def load(self) -> Contexts:
        """Raises CONFIG_INVALID for a file that others can read, that belongs to another user, or that is damaged."""
        try:
            return read_contexts(self.path, _contexts)
        except FileNotFoundError:
            return Contexts()
        except ConfigError as error:
            raise TobanError(ErrorCode.CONFIG_INVALID, error.args[0]) from None

    @contextmanager
    def change(self) -> Iterator[list[Contexts]]:
        """The contexts as the one item of a list; what it holds at the end is stored, unless an error ends the block."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            held = [self.load()]
            yield held
            self._store(held[0])
        finally:
            os.close(folder)

    def _store(self, contexts: Contexts) -> None:
        # What a link names is replaced, not the link.
        target = self.path.resolve()
        try:
            # Of mode 0600 from the start.
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".contexts-")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                    opened.write(_toml(contexts))
                    opened.flush()
                    os.fsync(opened.fileno())
                Path(name).replace(target)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> TobanError:
        message = f"{self.path} cannot be written ({error.strerror}); make its folder writable, or set XDG_CONFIG_HOME"
        return TobanError(ErrorCode.CONFIG_INVALID, message)


def check_name(name: str) -> str:
    """The name. Raises INVALID_ARGUMENT for one that a context cannot have."""
    if not _NAME.fullmatch(name):
        message = f"{name[:64]!r} is no name of a context; use up to 64 letters, digits, '.', '_' and '-'"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    return name


def _contexts(found: Mapping[str, Any]) -> Contexts:
    named = {}
    for name, given in _table(found, "contexts").items():
        values = _table(found["contexts"], name)
        for key, value in values.items():
            if key not in _KEYS:
                raise ValueError(f"context {name}: {key} is not a known key; there are {', '.join(_KEYS)}")
            if not isinstance(value, int if key == "token_id" else str) or isinstance(value, bool):
                raise ValueError(f"context {name}: {key} is {'a number' if key == 'token_id' else 'a text in quotes'}")
        if not values.get("url"):
            raise ValueError(f"context {name} has no url")
        named[name] = Context(**given)
    stacks = {name: str(folder) for name, folder in _table(found, "stacks").items() if name in named}
    return Contexts(current=str(found.get("current", "")), named=named, stacks=stacks)


def _table(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key, {})
    if not isinstance(value, dict):
        raise TypeError(f"{key} is not a table")
    return value


def _toml(contexts: Contexts) -> str:
    """Texts of JSON are texts of TOML, but for DEL."""
    lines = ["# Written by `toban login` and `toban context`. It holds API tokens: keep it to yourself."]
    lines += [f"current = {_text(contexts.current)}"] if contexts.current else []
    for name, context in sorted(contexts.named.items()):
        values = {key: value for key, value in asdict(context).items() if value}
        lines += ["", f"[contexts.{_text(name)}]"]
        lines += [f"{key} = {value if isinstance(value, int) else _text(value)}" for key, value in values.items()]
    lines += ["", "[stacks]"] if contexts.stacks else []
    lines += [f"{_text(name)} = {_text(folder)}" for name, folder in sorted(contexts.stacks.items())]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value).replace("\x7f", "\\u007f")
