"""What comes from outside, fit for a terminal and for readers of JSON: nothing that moves the cursor, recolours or turns text around."""

from __future__ import annotations

import re

_STRANGE = {"\n": " ", "\r": " ", "\t": " ", "\xa0": " "}
_LONG_WORD = 300
_SHOWN_WORD = 60
# Control sequences as a whole (ECMA-48): CSI; OSC, DCS, SOS, PM and APC up to their end; other escapes.
# The escape of an unfinished one is a strange character.
_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-OQ-WYZ\\`-~]"
)
_REPLACED = "\ufffd"
_KEPT = frozenset("\t\xa0")


def clean(text: str) -> str:
    """One line; blanks of other kinds as spaces, any other character that cannot be printed as \ufffd."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _STRANGE.get(char, "\ufffd") for char in text)


def clean_lines(text: str) -> str:
    """As `clean`, but line breaks and tabs stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char in "\n\t" else clean(char) for char in text)


def escaped(text: str) -> str:
    r"""JSON, or YAML whose texts with such characters are quoted: characters that cannot be printed as \uXXXX. Readers get the same data."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def cut_words(text: str, longest: int = _LONG_WORD) -> str:
    """The text with the middle of endless words (numbers of 600 digits) left out."""
    return re.sub(rf"\S{{{longest + 1},}}", lambda word: f"{word[0][:_SHOWN_WORD]}…{word[0][-1]}", text)


def clean_bytes(line: bytes) -> bytes:
    """One line as printable UTF-8: control sequences are left out, a carriage return at the end too, any other strange character becomes \ufffd."""
    if line.isascii() and line.decode().isprintable():
        return line
    text = _SEQUENCES.sub("", line.decode("utf-8", "replace").removesuffix("\r"))
    return "".join(char if char.isprintable() or char in _KEPT else _REPLACED for char in text).encode()


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
