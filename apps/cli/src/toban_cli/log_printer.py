"""Log lines onto our own stdout and stderr, each line once: as the job wrote them, or as JSON."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from toban_cli import report
from toban_cli.formatting import count
from toban_cli.sanitize import clean_bytes, escaped

# A line of a job that looks like one of the executor.
_PRETENDS = re.compile(r"[\W_]*toban\s*\]", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STREAM_NAMES = {1: "stdout", 2: "stderr", 3: "system"}
_STDOUT = 1
_SYSTEM = 3


@dataclass(frozen=True, kw_only=True)
class Style:
    """How lines look. Without `raw` a terminal is protected from what jobs write; `attempts` names the attempt of a token in JSON."""

    raw: bool = False
    timestamps: bool = False
    as_json: bool = False
    attempts: Mapping[int, int] = field(default_factory=dict)


class LinePrinter:
    """Prints lines as they come and remembers, for each attempt, how far it got: what is read again is not printed again."""

    def __init__(self, style: Style | None = None) -> None:
        self._style = style or Style()
        self._printed: dict[int, int] = {}
        # Streams whose last piece had no newline: the next piece continues its line.
        self._open: set[int] = set()
        self._expired: dict[int, int] = {}

    @property
    def has_expired(self) -> bool:
        """Whether some of the lines were deleted after their retention."""
        return bool(self._expired)

    @property
    def printed(self) -> Mapping[int, int]:
        """Token of each attempt seen → its last sequence number printed."""
        return dict(self._printed)

    def show(self, answer: Any) -> None:
        """Prints the new lines of one ReadLogResponse."""
        if answer.expired_lines > self._expired.get(answer.token, 0):
            self._expired[answer.token] = answer.expired_lines
            report.note(format_expired_lines(answer.expired_lines, self._style.attempts.get(answer.token)))
        known = self._printed.get(answer.token, 0)
        for line in answer.lines:
            if line.seq <= known:
                continue
            known = line.seq
            if self._style.as_json:
                write(sys.stdout, self._json(answer.token, line))
            else:
                out = sys.stdout if line.stream == _STDOUT else sys.stderr
                write(out, self._text(line, terminal=out.isatty()))
        if answer.lines:
            self._printed[answer.token] = known

    def _text(self, line: Any, *, terminal: bool) -> bytes:
        shown = terminal and not self._style.raw
        text = clean_bytes(line.text) if shown else line.text
        if (
            shown
            and line.stream != _SYSTEM
            and line.stream not in self._open
            and _PRETENDS.match(text.decode("utf-8", "replace"))
        ):
            text = b"[job] " + text
        if line.stream not in self._open:
            prefix = b"[toban] " if line.stream == _SYSTEM else b""
            if self._style.timestamps:
                prefix = line_time(line).astimezone().isoformat(timespec="milliseconds").encode() + b" " + prefix
            text = prefix + text
        if line.partial:
            self._open.add(line.stream)
            return bytes(text)
        self._open.discard(line.stream)
        return bytes(text + b"\n")

    def _json(self, token: int, line: Any) -> bytes:
        return json_line(line_facts(token, self._style.attempts.get(token), line))


def format_expired_lines(lines: int, attempt: int | None) -> str:
    """A note that lines were deleted after their retention."""
    of = f" of attempt {attempt}" if attempt else ""
    return f"{count(lines, 'line')}{of} expired: older than log_retention_days_archive"


def line_facts(token: int, attempt: int | None, line: Any) -> dict[str, Any]:
    """A LogLine for programs."""
    facts: dict[str, Any] = {
        "token": str(token),
        "attempt": attempt,
        "seq": line.seq,
        "at": line_time(line).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "stream": STREAM_NAMES.get(line.stream, "system"),
        "level": line.level or None,
        "text": line.text.decode("utf-8", "replace"),
        "partial": line.partial,
    }
    if not _is_utf8(line.text):
        facts["base64"] = base64.b64encode(line.text).decode()
    return facts


def json_line(facts: Mapping[str, Any]) -> bytes:
    """One object on one line."""
    return escaped(json.dumps(facts, ensure_ascii=False)).encode() + b"\n"


def line_time(line: Any) -> datetime:
    """When it was read."""
    return _EPOCH + timedelta(microseconds=line.at_unix_nanos // 1000)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def write(out: Any, text: bytes) -> None:
    """The bytes as they are; a stand-in without bytes (a test's capture) gets them decoded."""
    out.flush()
    raw = getattr(out, "buffer", None)
    if raw is not None:
        raw.write(text)
        raw.flush()
    else:
        out.write(text.decode(errors="replace"))
        out.flush()
