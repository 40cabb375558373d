"""What the process of a sandbox says to its slot supervisor. It has the uid of jobs, so its words are read as data of strangers are."""

import struct
from typing import NamedTuple

LARGEST_REQUEST = 1 << 19
LARGEST_ANSWER = 1 << 16
_READY, _FAILED, _STARTED, _ENDED = b"rfse"
_PAIR = struct.Struct("=ii")
MOST_ENDED = 4096
"""Of one message."""


class Ready(NamedTuple):
    """It has dropped every right."""


class Failed(NamedTuple):
    """It does not come up, or a program does not start."""

    reason: str


class Started(NamedTuple):
    """A program runs; the number is that of its namespace."""

    pid: int


class Ended(NamedTuple):
    """Processes have ended: numbers of its namespace with their status."""

    processes: tuple[tuple[int, int], ...]


Said = Ready | Failed | Started | Ended


def encode(said: Said) -> bytes:
    """For one packet."""
    match said:
        case Ready():
            return bytes((_READY,))
        case Failed(reason):
            return bytes((_FAILED,)) + reason.encode(errors="replace")
        case Started(pid):
            return bytes((_STARTED,)) + _PAIR.pack(pid, 0)
        case Ended(processes):
            return bytes((_ENDED,)) + b"".join(_PAIR.pack(*one) for one in processes)


def decode(data: bytes) -> Said:
    """The inverse of encode. Raises ValueError for anything else."""
    try:
        match data[0]:
            case kind if kind == _READY:
                return Ready()
            case kind if kind == _FAILED:
                return Failed(data[1:].decode(errors="replace"))
            case kind if kind == _STARTED:
                return Started(_PAIR.unpack(data[1:])[0])
            case kind if kind == _ENDED:
                return Ended(tuple((pid, status) for pid, status in _PAIR.iter_unpack(data[1:])))
    except (IndexError, struct.error):
        pass
    raise ValueError(f"no message of a sandbox: {data[:20]!r}")
