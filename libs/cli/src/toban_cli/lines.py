"""Log lines onto our own stdout and stderr, each line once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


class LinePrinter:
    """Prints lines as they come and remembers, for each attempt, how far it got: what is read again is not printed again."""

    def __init__(self) -> None:
        self._printed: dict[int, int] = {}

    @property
    def printed(self) -> Mapping[int, int]:
        """Token of each attempt seen → its last sequence number printed."""
        return dict(self._printed)

    def show(self, answer: Any) -> None:
        """Prints the new lines of one ReadLogResponse."""
        from toban_proto.v1 import logs_pb2

        known = self._printed.get(answer.token, 0)
        for line in answer.lines:
            if line.seq <= known:
                continue
            known = line.seq
            stdout = line.stream == logs_pb2.LOG_STREAM_STDOUT
            out = sys.stdout if stdout else sys.stderr
            prefix = b"[toban] " if line.stream == logs_pb2.LOG_STREAM_SYSTEM else b""
            _write(out, prefix + line.text + (b"" if line.partial else b"\n"))
        if answer.lines:
            self._printed[answer.token] = known


def _write(out: Any, text: bytes) -> None:
    """The bytes as the job wrote them; a stand-in without bytes (a test's capture) gets them decoded."""
    out.flush()
    raw = getattr(out, "buffer", None)
    if raw is not None:
        raw.write(text)
        raw.flush()
    else:
        out.write(text.decode(errors="replace"))
        out.flush()
