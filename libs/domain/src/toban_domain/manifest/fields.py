"""Reads one mapping of a manifest strictly: every key is asked for by name, and what nobody asked for is an error with a hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toban_domain.manifest.problems import Problems, nearest
from toban_domain.payload import kind_of

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")
_MAX_TEXT = 4096
_MAX_INT = 2**31 - 1


class Fields:
    """One mapping at `path`. Each reader answers the default after noting a problem, so that one pass finds them all."""

    def __init__(self, problems: Problems, path: str, value: object) -> None:
        self.problems = problems
        self.path = path
        self._known: list[str] = []
        self._later: tuple[str, ...] = ()
        self._data: Mapping[Any, Any] = {}
        if isinstance(value, Mapping):
            self._data = value
        else:
            problems.add(path, f"must be a mapping, is {kind_of(value)}", "write `key: value` lines below it")

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def bad(self, key: str, message: str, hint: str = "") -> None:
        """Notes a problem with the value of `key`."""
        self.problems.add(self.at(key), message, hint)

    def has(self, key: str) -> bool:
        """True when the key is there and not empty."""
        return self._data.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value as it stands; None when it is missing."""
        self._known.append(key)
        return self._data.get(key)

    def text(self, key: str, default: str = "", *, required: bool = False, choices: Sequence[str] = ()) -> str:
        """A text of one of `choices` (any when there are none)."""
        value = self.raw(key)
        if value is None:
            if required:
                self.bad(key, "is missing", f"add `{key}:`")
            return default
        if not isinstance(value, str):
            self.bad(key, f"must be text, is {kind_of(value)}", 'put it into quotes: "…"')
        elif choices and value not in choices:
            near = nearest(value, choices)
            self.bad(key, f"is {value!r}", f"did you mean {near!r}?" if near else f"use one of {', '.join(choices)}")
        elif len(value) > _MAX_TEXT or "\0" in value:
            self.bad(key, "is too long or has a NUL character", f"use at most {_MAX_TEXT} characters")
        else:
            return value
        return default

    def name(self, key: str, *, required: bool = True) -> str:
        """A name of a job or schedule."""
        value = self.text(key, required=required)
        if value and not NAME.fullmatch(value):
            self.bad(
                key,
                f"{value!r} is not a name",
                "use a-z, 0-9, '.', '_', '-', beginning and ending with a letter or digit, at most 128",
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.bad(
                key,
                f"must be true or false, is {value!r}"
                if isinstance(value, str)
                else f"must be true or false, is {kind_of(value)}",
            )
            return default
        return value

    def integer(self, key: str, default: int, *, low: int = 0, high: int = _MAX_INT) -> int:
        """A whole number within low … high."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.bad(
                key,
                f"must be a whole number, is {value!r}"
                if isinstance(value, str | float)
                else f"must be a whole number, is {kind_of(value)}",
            )
            return default
        if not low <= value <= high:
            self.bad(key, f"is {value}", f"use {low} … {high}")
            return default
        return value

    def number(self, key: str, default: float, *, low: float = 0, high: float = _MAX_INT) -> float:
        """A number within low … high."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.bad(key, f"must be a number, is {kind_of(value)}")
            return default
        if not low <= value <= high:
            self.bad(key, f"is {value}", f"use {low:g} … {high:g}")
            return default
        return float(value)

    def texts(self, key: str, *, names: re.Pattern[str] = _LABEL, what: str = "label") -> dict[str, str]:
        """A mapping of text to text."""
        value = self.raw(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.bad(key, f"must be a mapping, is {kind_of(value)}", "write `name: value` lines below it")
            return {}
        for name, item in value.items():
            if not isinstance(name, str) or not names.fullmatch(name):
                self.bad(key, f"{name!r} is not a name of a {what}")
            elif not isinstance(item, str):
                self.bad(
                    f"{key}.{name}",
                    f"must be text, is {kind_of(item)}",
                    f'put it into quotes: {name}: "{_as_text(item)}"',
                )
            elif "\0" in item or len(item) > _MAX_TEXT:
                self.bad(f"{key}.{name}", "is too long or has a NUL character", f"use at most {_MAX_TEXT} characters")
        return {str(name): str(item) for name, item in value.items()}

    def below(self, key: str) -> Fields:
        """The mapping at `key` (an empty one when it is missing)."""
        value = self.raw(key)
        return Fields(self.problems, self.at(key), {} if value is None else value)

    def later(self, *keys: str) -> None:
        """Refuses keys that belong to the format but not yet to this version."""
        for key in keys:
            if self.has(key):
                self.bad(key, "is not available in this version", "take it out")
        self._later += keys

    def done(self, **meant: str) -> None:
        """Refuses every key that nobody asked for; `meant` maps usual mistakes to the key that was meant."""
        for key in self._data:
            if key in self._known or key in self._later:
                continue
            near = meant.get(str(key)) or nearest(str(key), self._known)
            hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(self._known)}"
            self.problems.add(self.at(str(key)), "is not a known key", hint)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
