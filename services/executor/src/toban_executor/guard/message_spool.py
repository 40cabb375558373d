"""Messages of a guard that an executor which died had not on disk, in a file for the next incarnation.

A guard numbers its messages. The executor's journal has, in the transaction that stores their content, the number of the last one; so each message
is recovered once, whenever the executor dies.
"""

import base64
import binascii
import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".left"
DRAFT = ".draft"
"""Of a guard that was killed while it wrote; it is of no use."""
_HEAD = struct.Struct("<qII")


class SpooledMessage(NamedTuple):
    """One message to the executor. The end of an attempt has its log ticket too, as its order had; b"" when that cannot be read."""

    number: int
    data: bytes
    ticket: bytes = b""


def name_of(incarnation: str, slot: int) -> str:
    """The guard's name in its file's name and in the journal."""
    return f"{incarnation}.{slot}"


def file_of(folder: Path, incarnation: str, slot: int) -> Path:
    """The spool file of a guard."""
    return folder / (name_of(incarnation, slot) + SUFFIX)


def drafts(folder: Path, incarnation: str) -> dict[str, int]:
    """Files that guards of an incarnation are writing, or were when they were killed, with their sizes in bytes."""
    sizes = {}
    for file in folder.glob(f"{incarnation}.*{DRAFT}"):
        with contextlib.suppress(OSError):  # It is whole now, and has its name.
            sizes[file.name] = file.stat().st_size
    return sizes


def write(path: Path, messages: Iterable[SpooledMessage]) -> None:
    """Store the messages so that a reader sees all of them or no file. Raises OSError."""
    draft = path.with_suffix(DRAFT)
    with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        for number, data, ticket in messages:
            text = base64.b64encode(ticket)
            file.write(_HEAD.pack(number, len(data), len(text)) + data + text)
    draft.replace(path)


def read(path: Path) -> list[SpooledMessage]:
    """The messages of a file; the whole ones at its beginning when it was cut by a power failure. Raises OSError."""
    content = path.read_bytes()
    found, at = [], 0
    while at + _HEAD.size <= len(content):
        number, size, ticket = _HEAD.unpack_from(content, at)
        start, middle, end = at + _HEAD.size, at + _HEAD.size + size, at + _HEAD.size + size + ticket
        if not size or end > len(content):
            break
        found.append(SpooledMessage(number, content[start:middle], _ticket(content[middle:end])))
        at = end
    return found


def _ticket(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        # The message itself may be whole, and so may those after it.
        return b""
