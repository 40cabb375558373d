"""ExecStart= and Environment=: systemd's quoting, prefixes, and variables of which the unit gives the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "s": " ",
    "\\": "\\",
    '"': '"',
    "'": "'",
}
_CODES = {"x": (2, 16), "u": (4, 16), "U": (8, 16)}
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}")
_ALONE = re.compile(r"\$([A-Za-z_]\w*)")
_PREFIXES = "-@:+!|"


class ExecError(ValueError):
    """The line cannot be read: why."""


@dataclass(frozen=True, slots=True)
class ExecLine:
    """One command: its words, its prefixes ("-+"), and variables without a value."""

    argv: tuple[str, ...]
    prefixes: str
    unknown: tuple[str, ...] = ()


def split_words(text: str) -> list[str]:
    """The words as systemd splits them; raises ExecError."""
    return [word for word, _ in _words(text)]


def _words(text: str) -> list[tuple[str, bool]]:
    """Each word, and whether it stands there as it is, without quotes and escapes."""
    words: list[tuple[str, bool]] = []
    word, plain, quote, place = "", True, "", 0
    begun = False
    while place < len(text):
        char = text[place]
        if char == "\\":
            decoded, place = _escape(text, place)
            word, begun, plain = word + decoded, True, False
            continue
        place += 1
        if char == quote:
            quote = ""
        elif quote or char not in " \t\n'\"":
            word, begun = word + char, True
        elif char in "'\"":
            quote, begun, plain = char, True, False
        elif begun:
            words.append((word, plain))
            word, begun, plain = "", False, True
    if quote:
        raise ExecError("a quote has no end")
    return [*words, (word, plain)] if begun else words


def _escape(text: str, place: int) -> tuple[str, int]:
    """The character of an escape, and the place behind it. As in systemd an unknown one stays as it stands."""
    letter = text[place + 1 : place + 2]
    if letter in _ESCAPES and letter:
        return _ESCAPES[letter], place + 2
    length, base = _CODES.get(letter, (3, 8))
    begin = place + 2 if letter in _CODES else place + 1
    digits = text[begin : begin + length]
    if len(digits) == length and all(
        digit in "0123456789abcdefABCDEF"[: base if base == 8 else None] for digit in digits
    ):
        code = int(digits, base)
        if 0 < code < 0xD800 or 0xE000 <= code < 0x110000:
            return chr(code), begin + length
    return text[place : place + 2], place + 2


def read_exec(text: str, env: Mapping[str, str]) -> list[ExecLine]:
    """The commands of one line, which a ; of its own separates; raises ExecError."""
    commands: list[list[str]] = [[]]
    for word, plain in _words(text):
        if word == ";" and plain:
            commands.append([])
        else:
            commands[-1].append(";" if word == "\\;" else word)
    return [_command(words, env) for words in commands if words]


def _command(words: list[str], env: Mapping[str, str]) -> ExecLine:
    program = words[0].lstrip(_PREFIXES)
    prefixes = words[0][: len(words[0]) - len(program)]
    rest = words[1:]
    if not program:
        raise ExecError(f"there is no program behind {prefixes!r}")
    if "@" in prefixes:
        # The word behind the program is only its argv[0].
        rest = rest[1:]
    if ":" in prefixes:
        return ExecLine((program, *rest), prefixes)
    unknown: list[str] = []
    argv = [program]
    for word in rest:
        if found := _ALONE.fullmatch(word):
            argv += env[found[1]].split() if found[1] in env else [word]
            unknown += [] if found[1] in env else [word]
        else:
            unknown += [one[0] for one in _VARIABLE.finditer(word) if one[1] and one[1] not in env]
            argv.append(_VARIABLE.sub(lambda one: env.get(one[1], one[0]) if one[1] else "$", word))
    return ExecLine(tuple(argv), prefixes, tuple(unknown))
