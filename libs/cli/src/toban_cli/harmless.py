"""What a job wrote, fit for a terminal: text only, nothing that moves the cursor, recolours, retitles or turns text around."""

from __future__ import annotations

import re

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


def harmless(line: bytes) -> bytes:
    """One line as printable UTF-8: control sequences are left out, a carriage return at the end too, any other strange character becomes \ufffd."""
    if line.isascii() and line.decode().isprintable():
        return line
    text = _SEQUENCES.sub("", line.decode("utf-8", "replace").removesuffix("\r"))
    return "".join(char if char.isprintable() or char in _KEPT else _REPLACED for char in text).encode()
