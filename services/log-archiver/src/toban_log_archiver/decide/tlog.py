"""The format of an object (`.tlog`): the zstd frames of chunks one behind the other, then an index that needs no database.

The index is JSON in a zstd skippable frame, so that `zstd -dc` gives the LogLines of the whole object. The last FOOTER_BYTES of an object are
the length of the index (8 bytes, little-endian), its SHA-256 and MAGIC.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any

MAGIC = b"TOBANLOG"
_SKIPPABLE = 0x184D2A5E
_HEAD = struct.Struct("<II")
_FOOTER = struct.Struct("<Q32s8s")
FOOTER_BYTES = _FOOTER.size
VERSION = 1


class TlogInvalid(ValueError):
    """An object has no index, or one that is damaged: the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One chunk in an object; `sha256` is that of its frame."""

    run_id: int
    token: int
    stream: int
    seq_from: int
    seq_to: int
    line_count: int
    byte_offset: int
    byte_length: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What an object holds."""

    log_day: date
    frames: Sequence[Frame]


def key_of(log_day: date, sha256: bytes) -> str:
    """The name of an object, which its content alone decides."""
    return f"logs/v1/{log_day.isoformat()}/{sha256.hex()}.tlog"


def trailer(index: Index) -> bytes:
    """What follows the last frame."""
    body = json.dumps(_to_json(index), separators=(",", ":")).encode()
    footer = _FOOTER.pack(len(body), hashlib.sha256(body).digest(), MAGIC)
    return _HEAD.pack(_SKIPPABLE, len(body) + len(footer)) + body + footer


def index_length(footer: bytes) -> int:
    """How many bytes before the footer are the index. Raises TlogInvalid."""
    return _opened(footer)[0]


def read_index(body: bytes, footer: bytes) -> Index:
    """The index out of its bytes. Raises TlogInvalid unless they are exactly those that the footer names."""
    length, digest = _opened(footer)
    if len(body) != length or hashlib.sha256(body).digest() != digest:
        raise TlogInvalid("the index is not the one that the footer names")
    try:
        return _from_json(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise TlogInvalid(f"the index cannot be read ({type(error).__name__}: {error})") from None


def _opened(footer: bytes) -> tuple[int, bytes]:
    if len(footer) != FOOTER_BYTES:
        raise TlogInvalid(f"it has {len(footer)} bytes in place of a footer of {FOOTER_BYTES}")
    length, digest, magic = _FOOTER.unpack(footer)
    if magic != MAGIC:
        raise TlogInvalid("it does not end as a log object does")
    return length, digest


def _to_json(index: Index) -> dict[str, Any]:
    tokens = [
        {"run_id": run_id, "token": token, "chunks": [_row(frame) for frame in frames]}
        for (run_id, token), frames in groupby(index.frames, key=lambda frame: (frame.run_id, frame.token))
    ]
    columns = ["stream", "seq_from", "seq_to", "line_count", "byte_offset", "byte_length", "sha256"]
    return {"version": VERSION, "log_day": index.log_day.isoformat(), "columns": columns, "tokens": tokens}


def _row(frame: Frame) -> list[int | str]:
    return [
        frame.stream,
        frame.seq_from,
        frame.seq_to,
        frame.line_count,
        frame.byte_offset,
        frame.byte_length,
        frame.sha256.hex(),
    ]


def _from_json(found: Mapping[str, Any]) -> Index:
    if found["version"] != VERSION:
        raise TlogInvalid(f"the index has version {found['version']}; this release reads {VERSION}")
    frames = tuple(_frames(found["tokens"], found["columns"]))
    return Index(log_day=date.fromisoformat(found["log_day"]), frames=frames)


def _frames(tokens: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterable[Frame]:
    for token in tokens:
        for row in token["chunks"]:
            named = dict(zip(columns, row, strict=True))
            digest = bytes.fromhex(named.pop("sha256"))
            yield Frame(run_id=token["run_id"], token=token["token"], sha256=digest, **named)
