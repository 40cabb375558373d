"""Messages between the executor and its guards, over SOCK_SEQPACKET socket pairs.

The kernel keeps message boundaries, so there is no framing and a process that is killed never leaves half a message. The
first byte names the kind: ``J`` a JSON object, ``L`` a block of output lines.
"""

import json
import socket
import struct
from typing import Any

from toban_executor.decide.log_block import LogBlock

MAX_MESSAGE = 192 * 1024
"""Bytes. An order whose message is larger is refused; far above the 32 KiB of a payload."""

_BUFFER = 1 << 20
_BLOCK = struct.Struct("<cB?qqI")


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair with large buffers; neither end survives an exec unless passed on purpose."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    return pair


def encode(message: dict[str, Any]) -> bytes:
    """One JSON message."""
    return b"J" + json.dumps(message, separators=(",", ":")).encode()


def encode_block(block: LogBlock) -> bytes:
    """One block of output lines."""
    head = _BLOCK.pack(b"L", block.stream, block.partial, block.at_ns, block.seq_from, block.count)
    return head + block.text


def decode(data: bytes) -> dict[str, Any] | LogBlock:
    """The message in `data`, of either kind."""
    if data[:1] == b"L":
        _, stream, partial, at_ns, seq_from, count = _BLOCK.unpack_from(data)
        return LogBlock(
            stream=stream, partial=partial, at_ns=at_ns, seq_from=seq_from, count=count, text=data[_BLOCK.size :]
        )
    message: dict[str, Any] = json.loads(data[1:])
    return message
