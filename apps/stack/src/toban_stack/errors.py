"""Errors while a stack starts or stops, with messages for the person at the prompt."""

from pathlib import Path

TAIL_LINES = 15
_TAIL_BYTES = 65536


class StackError(Exception):
    """A command failed; the message names the cause, the place and the remedy."""


class ProcessFailed(StackError):
    """A process ended, or was not ready in time; the message has the last lines of its log."""

    def __init__(self, *, name: str, reason: str, log: Path) -> None:
        self.name = name
        self.log = log
        super().__init__(f"{name} {reason}\n{_indented(tail(log))}\n  full log: {log}")


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log file; empty when the file does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            raw = file.read()
    except FileNotFoundError:
        return []
    return raw.decode("utf-8", "replace").splitlines()[-lines:]


def _indented(lines: list[str]) -> str:
    return "\n".join(f"  | {line}" for line in lines) or "  | (its log is empty)"
