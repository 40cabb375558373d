"""What a guard had told an executor that died before it was on disk there: kept in a file for the next incarnation.

A guard numbers its messages. The executor's journal knows, written in one transaction with what they said, up to which one it has
them; so each message is taken up once, whenever the executor dies.
"""

import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".left"
DRAFT = ".draft"
"""Of a guard that was killed while it wrote: nothing can be made of it."""
_HEAD = struct.Struct("<qII")


class Said(NamedTuple):
    """One message to the executor. The end of an attempt has its log ticket too, as its order had."""

    number: int
    data: bytes
    ticket: str = ""


def name_of(incarnation: str, slot: int) -> str:
    """What a guard is called in its file's name and in the journal."""
    return f"{incarnation}.{slot}"


def file_of(folder: Path, incarnation: str, slot: int) -> Path:
    """Where a guard leaves its messages."""
    return folder / (name_of(incarnation, slot) + SUFFIX)


def drafts(folder: Path, incarnation: str) -> dict[str, int]:
    """Files that guards of an incarnation are writing, or were when they were killed, with their sizes in bytes."""
    sizes = {}
    for file in folder.glob(f"{incarnation}.*{DRAFT}"):
        with contextlib.suppress(OSError):  # It is whole now, and has its name.
            sizes[file.name] = file.stat().st_size
    return sizes


def write(path: Path, said: Iterable[Said]) -> None:
    """Store the messages so that a reader sees all of them or no file. Raises OSError."""
    draft = path.with_suffix(DRAFT)
    with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        for one in said:
            ticket = one.ticket.encode()
            file.write(_HEAD.pack(one.number, len(one.data), len(ticket)) + one.data + ticket)
    draft.replace(path)


def read(path: Path) -> list[Said]:
    """The messages of a file; what a power cut left of it, when there was one. Raises OSError; ValueError when a ticket is not text."""
    content = path.read_bytes()
    found, at = [], 0
    while at + _HEAD.size <= len(content):
        number, size, ticket = _HEAD.unpack_from(content, at)
        start, middle, end = at + _HEAD.size, at + _HEAD.size + size, at + _HEAD.size + size + ticket
        if not size or end > len(content):
            break
        found.append(Said(number, content[start:middle], content[middle:end].decode()))
        at = end
    return found
