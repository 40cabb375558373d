"""The allow-list of an executor: programs, their arguments, and the variables that a definition may set. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import basename, dirname

DEFAULT_VARIABLES = ("LANG", "LC_*", "TZ")
"""What a definition may set where the list has no line `env:`."""
NEVER = (
    *("BASHOPTS", "BASH_*", "ENV", "IFS", "PS4", "SHELLOPTS"),
    *("GCONV_PATH", "GLIBC_TUNABLES", "LD_*", "LOCPATH", "NLSPATH", "PATH"),
    *(
        "GIT_*",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "NODE_OPTIONS",
        "PERL*",
        "PYTHON*",
        "RUBY*",
        "TAR_OPTIONS",
        "_JAVA_OPTIONS",
    ),
)
"""With these a program runs code, or other programs, that its arguments do not show. No line `env:` permits them."""
REST = "..."
"""Last in a line `args:`: any further arguments."""
_VARIABLE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\*?|\*)\Z")

Arguments = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """Programs by absolute path, by name, or by folder (`/opt/jobs/*`); a name means the file found on the executor's own PATH.

    `arguments` are the patterns of those that may not have any. `listed` is False when there is no file: every program
    is allowed then, with every variable.
    """

    listed: bool = False
    programs: frozenset[str] = frozenset()
    arguments: Mapping[str, tuple[Arguments, ...]] = field(default_factory=dict)
    variables: tuple[str, ...] = DEFAULT_VARIABLES
    shell: bool = True

    def entries(self, names: Sequence[str]) -> list[str]:
        """The lines that name one of these: a program, as it is called and as it was found."""
        folders = [
            f"{dirname(name)}/*" for name in names if name.startswith("/") and basename(name) not in ("", ".", "..")
        ]
        return [entry for entry in (*names, *folders) if entry in self.programs]

    def permits(self, entries: Iterable[str], arguments: Sequence[str]) -> bool:
        """Whether one of these lines permits the arguments."""
        allowed = (self.arguments.get(entry) for entry in entries)
        return any(found is None or any(arguments_match(one, arguments) for one in found) for found in allowed)

    def why_not_variables(self, names: Iterable[str]) -> str:
        """Why a definition may not set these variables ("" = it may)."""
        if not self.listed:
            return ""
        for name in sorted(names):
            if any(text_matches(one, name) for one in NEVER):
                return f"variable {name!r} changes what programs run; no executor with an allow-list takes it"
            if not any(text_matches(one, name) for one in self.variables):
                return f"variable {name!r} is not in this executor's allow-list (env: {' '.join(self.variables) or 'none'})"
        return ""


def arguments_match(patterns: Arguments, arguments: Sequence[str]) -> bool:
    """Whether each argument matches the pattern in its place, as a whole; the last pattern may be REST."""
    open_ended = patterns[-1:] == (REST,)
    wanted = patterns[:-1] if open_ended else patterns
    if len(arguments) < len(wanted) or (len(arguments) > len(wanted) and not open_ended):
        return False
    return all(map(text_matches, wanted, arguments))


def text_matches(pattern: str, text: str) -> bool:
    """Whether `text` as a whole matches: `*` is any characters, everything else itself. Takes time linear in the length of `text` for a pattern."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    *between, last = rest
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    # The first place for each part leaves the most for those after it.
    at, end = len(first), len(text) - len(last)
    for part in between:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def parse_allow_list(text: str) -> AllowList:
    """One program a line, `args:` lines below it, `env:` for variables, `shell: true` for shells, `#` comments. Raises ValueError naming the line."""
    reading = _Reading()
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            reading.take(line.strip())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return AllowList(
        listed=True,
        programs=frozenset(reading.programs),
        # A program that stands somewhere without `args:` has any.
        arguments={
            name: tuple(one for one in found if one is not None)
            for name, found in reading.programs.items()
            if None not in found
        },
        variables=DEFAULT_VARIABLES if reading.variables is None else tuple(reading.variables),
        shell=reading.shell,
    )


class _Reading:
    """What the lines so far have. Of a program the patterns of each line `args:`, None for a place where it has none."""

    def __init__(self) -> None:
        self.programs: dict[str, list[Arguments | None]] = {}
        self.variables: list[str] | None = None
        self.shell = False
        self._last = ""

    def take(self, line: str) -> None:
        key, colon, value = line.partition(":")
        if colon and key == "args":
            self._arguments(shlex.split(value, comments=True))
            return
        entry = line.partition("#")[0].strip()
        value = entry.partition(":")[2]
        if not entry:
            return
        if colon and key == "shell":
            self.shell = _truth(value.strip())
        elif colon and key == "env":
            self.variables = [*(self.variables or ()), *map(_variable, value.split())]
        else:
            self._last = _program(entry)
            self.programs.setdefault(self._last, []).append(None)

    def _arguments(self, patterns: list[str]) -> None:
        if not self._last:
            raise ValueError("args: stands below no program; write it below the one that it is for")
        if REST in patterns[:-1]:
            raise ValueError(f"args: {REST} stands for all further arguments; write it last")
        found = self.programs[self._last]
        if found[-1] is None:
            found.pop()
        found.append(tuple(patterns))


def _program(entry: str) -> str:
    if len(entry.split()) > 1 or ("/" in entry and not entry.startswith("/")):
        raise ValueError(f"{entry!r} is neither a name nor an absolute path; arguments have lines `args:` of their own")
    if "*" in entry.removesuffix("/*"):
        raise ValueError(f"{entry!r}: a program has * only as /FOLDER/*, for the files in a folder")
    return entry


def _variable(name: str) -> str:
    if not _VARIABLE.match(name):
        raise ValueError(f"env: {name!r} is no name of a variable; NAME or PREFIX* with letters, digits and _")
    # A listed * or G* stands for what it may.
    if any(text_matches(one, name.removesuffix("*") if one.endswith("*") else name) for one in NEVER):
        raise ValueError(f"env: {name!r} can never be listed, since with it programs run other code")
    return name


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"shell: must be true or false, not {text!r}")
    return text == "true"
