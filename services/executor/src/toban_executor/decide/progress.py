"""Progress that jobs report in their output: lines ``::progress 40 half way::`` on stdout.

A marker is a whole line: the word, a percentage of 0 … 100, an optional short text, two colons at the end. Everything similar
is plain text. Markers stay in the log like any other line.
"""

import re
from collections.abc import Iterable, Mapping

from toban_domain.outcome import AttemptKey
from toban_domain.progress import Progress, clean
from toban_executor.decide.outcome import at

STDOUT = 1
MAX_MARKER_BYTES = 2048
"""A longer line is no marker."""

_START = b"::progress "
_END = b"::"
_NUMBER = re.compile(rb"\d{1,3}(\.\d{1,6})?%?\Z")


def marker(line: bytes, at_ns: int) -> Progress | None:
    """The progress in this line (without its newline), written at `at_ns` (Unix time); None when it is no marker."""
    whole = line.rstrip(b" \t\r")
    if len(line) > MAX_MARKER_BYTES or not (whole.startswith(_START) and whole.endswith(_END)):
        return None
    number, _, summary = whole[len(_START) : -len(_END)].strip().partition(b" ")
    if not _NUMBER.match(number) or (percentage := float(number.rstrip(b"%"))) > 100:
        return None
    return Progress(percentage=percentage, summary=clean(summary.decode(errors="replace")), at=at(at_ns))


class ProgressBook:
    """The last progress of each live attempt, and which of it no coordinator has acknowledged."""

    def __init__(self) -> None:
        self._last: dict[AttemptKey, Progress] = {}
        self._unacknowledged: set[AttemptKey] = set()
        # JSON of the steps of attempts that no coordinator has acknowledged.
        self._steps: dict[AttemptKey, str] = {}
        # Attempts whose stdout is in the middle of a line that came in pieces.
        self._inside: set[AttemptKey] = set()

    def put(self, key: AttemptKey, progress: Progress) -> None:
        """What a job said on its socket."""
        self._last[key] = progress
        self._unacknowledged.add(key)

    def put_steps(self, key: AttemptKey, text: str) -> None:
        """The steps that the attempt has reached, as JSON."""
        self._steps[key] = text

    def unacknowledged_steps(self, live: Iterable[AttemptKey]) -> dict[AttemptKey, str]:
        """What the next heartbeat carries of the steps of these attempts."""
        return {key: self._steps[key] for key in live if key in self._steps} if self._steps else {}

    def acknowledge_steps(self, sent: Mapping[AttemptKey, str]) -> None:
        """A coordinator has answered a heartbeat with `sent`."""
        for key, text in sent.items():
            if self._steps.get(key) is text:
                del self._steps[key]

    def read(self, key: AttemptKey, *, stream: int, text: bytes, partial: bool, at_ns: int) -> None:
        """Scan output: whole lines, or one `partial` line alone. Of several markers the last counts."""
        if stream != STDOUT:
            return
        inside = key in self._inside
        if partial and len(text) > MAX_MARKER_BYTES:
            self._inside.add(key)
        elif inside:
            self._inside.discard(key)
        if _START not in text:
            return
        lines = text.split(b"\n")
        for line in reversed(lines[1:] if inside else lines):
            if line.startswith(_START) and (progress := marker(line, at_ns)) is not None:
                self._last[key] = progress
                self._unacknowledged.add(key)
                return

    def unacknowledged(self, live: Iterable[AttemptKey]) -> dict[AttemptKey, Progress]:
        """What the next heartbeat carries, of these attempts."""
        return {key: self._last[key] for key in live if key in self._unacknowledged}

    def acknowledge(self, sent: Mapping[AttemptKey, Progress]) -> None:
        """A coordinator has answered a heartbeat with `sent`; newer progress goes with the next one."""
        self._unacknowledged.difference_update(key for key, progress in sent.items() if self._last.get(key) is progress)

    def closed(self, key: AttemptKey) -> Progress | None:
        """The attempt has ended: its last progress, which goes with its outcome."""
        self._unacknowledged.discard(key)
        self._inside.discard(key)
        self._steps.pop(key, None)
        return self._last.pop(key, None)
