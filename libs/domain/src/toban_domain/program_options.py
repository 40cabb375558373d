"""How programs read their arguments: which of them are options, and of what kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

CODE, ALSO, VALUE, COMMAND, FLAG, END, UNKNOWN, MADE = "!", "+", "=", ">", "", ".", "?", "@"
"""Kinds of options. The first five are marks in `words`. CODE stands in place of an argument that is code, and ALSO does not; COMMAND is
followed by a program and its arguments; behind END and its code there is no option; MADE is named by a template."""
_WORST = (CODE, COMMAND, ALSO, VALUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How a program reads its arguments.

    `code` to `flags` are letters of short options; without `flags` every other letter is a flag, else it is unknown. `words` are options of
    several letters, each with the mark of its kind (`==`: two values). The argument number `place` is code or a file of it (0 = none), or
    with `starts` a program that is started with the rest. `anywhere`: options may follow arguments. `variables`: A=x is no argument.
    `joins`: all words may become code. `signs`: with what options begin. `ends`: behind `code` there is none.
    """

    code: str = ""
    also: str = ""
    value: str = ""
    end: str = ""
    flags: str = ""
    words: str = ""
    place: int = 0
    starts: bool = False
    anywhere: bool = False
    variables: bool = False
    joins: bool = False
    signs: str = "-"
    ends: bool = False

    def is_option(self, word: str) -> bool:
        return word in _kinds(self.words) or (len(word) > 1 and word[0] in self.signs)

    def option(self, word: str, template: str) -> tuple[str, str]:
        """The kind of an option, and its value when that is a part of the word. A long name may be abbreviated."""
        name, _, own = word.partition("=")
        known = _kinds(self.words)
        if name in known:
            return known[name], own
        if word.startswith("--"):
            if template in name:
                return MADE, ""
            near = [kind for item, kind in known.items() if len(name) > len("--") and item.startswith(name)]
            return next((kind for kind in _WORST if kind in near), FLAG if near else UNKNOWN), own
        return self._short(word, template)

    def _short(self, word: str, template: str) -> tuple[str, str]:
        kinds = ((CODE, self.code), (ALSO, self.also), (VALUE, self.value), (END, self.end))
        for at, letter in enumerate(word[1:], start=1):
            if word.startswith(template, at):
                return MADE, ""
            for kind, letters in kinds:
                if letter in letters:
                    return kind, word[at + 1 :]
            if self.flags and letter not in self.flags:
                return UNKNOWN, ""
        return FLAG, ""


@cache
def _kinds(words: str) -> Mapping[str, str]:
    return {name: word[len(name) :] for word in words.split() for name in [word.rstrip("!+=>")]}
