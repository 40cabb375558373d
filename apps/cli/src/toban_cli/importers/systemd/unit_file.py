"""A unit file as its settings, in their order: comments, continued lines, and lists that an empty value resets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_SECTION = re.compile(r"\[([^\[\]]+)\]")
_INSTANCE = re.compile(r"([^@]+)@(.*)\.(\w+)")
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)


@dataclass(slots=True)
class Unit:
    """A unit with its drop-ins. `name` has its ending; `problems` are lines that are no settings; `asked` are the settings that were read."""

    name: str
    path: str
    settings: list[tuple[str, str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    asked: set[tuple[str, str]] = field(default_factory=set)

    def all(self, section: str, key: str) -> list[str]:
        """The values of a list, those before an empty value left out."""
        self.asked.add((section, key))
        values: list[str] = []
        for in_section, name, value in self.settings:
            if (in_section, name) == (section, key):
                values = [*values, value] if value else []
        return values

    def last(self, section: str, key: str, default: str = "") -> str:
        """The value that holds."""
        values = self.all(section, key)
        return values[-1] if values else default

    def unread(self, *sections: str) -> list[str]:
        """The settings of these sections that nothing has asked for, as KEY=VALUE."""
        rest = (
            (key, value)
            for section, key, value in self.settings
            if section in sections and (section, key) not in self.asked
        )
        return [f"{key}={value}" for key, value in rest if value]

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self.name.rpartition(".")[0]

    @property
    def is_template(self) -> bool:
        """Whether the name has an empty instance: x@.timer."""
        return self.stem.endswith("@")

    def expand(self, text: str) -> tuple[str, list[str]]:
        """The text with the specifiers that follow from the name, and the others in it."""
        found = _INSTANCE.fullmatch(self.name)
        known = {"%": "%", "n": self.name, "N": self.stem, "p": found[1] if found else self.stem}
        if found and found[2]:
            known["i"] = found[2]
        unknown = [name for name in _SPECIFIER.findall(text) if name not in known]
        return _SPECIFIER.sub(lambda one: known.get(one[1], one[0]), text), [
            f"%{name}" for name in dict.fromkeys(unknown)
        ]


def template_of(name: str) -> str:
    """x@.service for x@y.service; "" for a name without an instance."""
    found = _INSTANCE.fullmatch(name)
    return f"{found[1]}@.{found[3]}" if found else ""


def drop_in_folders(name: str) -> list[str]:
    """The names of the folders with drop-ins of a unit, those that count most first; the last one is of all units of its type.

    >>> drop_in_folders("a-b@c.timer")
    ['a-b@c.timer.d', 'a-@c.timer.d', 'a-b@.timer.d', 'a-@.timer.d', 'timer.d']
    """
    made: list[str] = []
    for one in filter(None, (name, template_of(name))):
        prefix, at, rest = one.partition("@")
        if not at:
            prefix, _, ending = one.rpartition(".")
            rest = f".{ending}"
        words = prefix.split("-")
        cut = ["-".join(words[:count]) + "-" for count in range(len(words) - 1, 0, -1) if words[0]]
        made += [f"{begin}{at}{rest}.d" for begin in (prefix, *cut)]
    return [*dict.fromkeys(made), f"{name.rpartition('.')[2]}.d"]


def read_unit(name: str, path: str, texts: Sequence[bytes]) -> Unit:
    """The unit of its file and its drop-ins, in that order."""
    unit = Unit(name, path)
    for text in texts:
        section = ""
        for number, line in _lines(text.decode("utf-8", "replace")):
            if found := _SECTION.fullmatch(line):
                section = found[1]
            elif "=" in line and section:
                key, _, value = line.partition("=")
                unit.settings.append((section, key.strip(), value.strip()))
            else:
                unit.problems.append(f"line {number} is no setting, systemd ignores it too: {line}")
    return unit


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines that are neither blank nor comments, continued ones put together; each with its number."""
    done: list[tuple[int, str]] = []
    start, kept = 0, ""
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not kept):
            continue
        start = start if kept else number
        if line.endswith("\\"):
            kept += f"{line[:-1]} "
            continue
        done.append((start, (kept + line).strip()))
        kept = ""
    return [*done, (start, kept.strip())] if kept.strip() else done
