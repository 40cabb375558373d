"""What the programs of steps share: the variables that they pass on, their output, how they try again, and errors of what they ask."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from toban_executor.decide.environment import portable_variables
from toban_executor.guard.clock import pause
from toban_runtime.backoff import Backoff

CANCELED = 128 + signal.SIGTERM
"""Exit code of a step that a cancel has ended."""
_MOST_BYTES = 65536
_BACKOFF = Backoff(base=0.2, cap=5.0, jitter=0.2)


class Retry:
    """Waits before the next try, longer each time, and writes the first failure of several into the log, and each one of another kind."""

    def __init__(self, what: str, *, explain: Callable[[Exception], str] = str) -> None:
        self._what = what
        self._explain = explain
        self._failed = 0
        self._logged = ""

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._failed = 0

    def __call__(self, error: Exception) -> None:
        self._failed += 1
        text = self._explain(error)
        if self._failed == 1 or text != self._logged:
            self._logged = text
            say(f"{self._what} is tried again: {text}")
        pause(_BACKOFF.delay(self._failed))


def own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Toban's, for what a program starts elsewhere: the payload itself in place of its file."""
    payload = Path(environ["TOBAN_PAYLOAD_FILE"]).read_text(encoding="utf-8")
    return {**portable_variables(environ), "TOBAN_PAYLOAD": payload}


def error_text(response: http.client.HTTPResponse, sender: str) -> str:
    """The message of a refusal, as engines and the API of Kubernetes give it; else what `sender` has responded."""
    try:
        text = response.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        text = b""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, LookupError, TypeError):
        return f"{sender} responded with {response.status}: {text[:200].decode(errors='replace')}"


def write_all(fd: int, data: bytes) -> None:
    """All of it, however little the pipe takes at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def say(line: str) -> None:
    """A line of the program itself, on stderr."""
    write_all(2, f"toban: {' '.join(line.split())}\n".encode(errors="replace"))


def fail(line: str, code: int = 1) -> int:
    """The reason of the failure, and its exit code."""
    say(line)
    return code
