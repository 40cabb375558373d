"""What jobs say of themselves in their output: lines ``::progress 40 half way::`` on stdout.

A marker is a whole line: the word, a percentage of 0 … 100, perhaps a few words, two colons at the end. Everything else that looks
nearly so is plain text. Markers stay in the log like any other line.
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
    """What this line, without its newline, says at `at_ns` (Unix time); None when it is no marker."""
    whole = line.rstrip(b" \t\r")
    if len(line) > MAX_MARKER_BYTES or not (whole.startswith(_START) and whole.endswith(_END)):
        return None
    number, _, words = whole[len(_START) : -len(_END)].strip().partition(b" ")
    if not _NUMBER.match(number) or (percentage := float(number.rstrip(b"%"))) > 100:
        return None
    return Progress(percentage=percentage, summary=clean(words.decode(errors="replace")), at=at(at_ns))


class ProgressBook:
    """The last word of each live attempt, and which of them no coordinator has heard yet."""

    def __init__(self) -> None:
        self._last: dict[AttemptKey, Progress] = {}
        self._unheard: set[AttemptKey] = set()
        # Attempts whose stdout is in the middle of a line that came in pieces.
        self._inside: set[AttemptKey] = set()

    def read(self, key: AttemptKey, *, stream: int, text: bytes, partial: bool, at_ns: int) -> None:
        """Look at output: whole lines, or one `partial` line alone. Of several markers the last counts."""
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
            if line.startswith(_START) and (said := marker(line, at_ns)) is not None:
                self._last[key] = said
                self._unheard.add(key)
                return

    def unheard(self, live: Iterable[AttemptKey]) -> dict[AttemptKey, Progress]:
        """What to tell in the next heartbeat, of these attempts."""
        return {key: self._last[key] for key in live if key in self._unheard}

    def heard(self, told: Mapping[AttemptKey, Progress]) -> None:
        """A coordinator has answered a heartbeat that told this; what was said since then is told again."""
        self._unheard.difference_update(key for key, said in told.items() if self._last.get(key) is said)

    def closed(self, key: AttemptKey) -> Progress | None:
        """The attempt has ended: its last word, which goes with its outcome."""
        self._unheard.discard(key)
        self._inside.discard(key)
        return self._last.pop(key, None)
