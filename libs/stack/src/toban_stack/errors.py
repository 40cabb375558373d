"""What can go wrong while a stack starts or stops, in words for the person at the prompt."""

from pathlib import Path

TAIL_LINES = 15


class StackError(Exception):
    """The stack cannot do what was asked; the message says what, where and the remedy."""


class ProcessFailed(StackError):
    """A process ended or stayed silent while it should have become ready."""

    def __init__(self, *, name: str, reason: str, log: Path) -> None:
        self.name = name
        self.log = log
        super().__init__(f"{name} {reason}\n{_indented(tail(log))}\n  full log: {log}")


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log file; nothing when there is no such file."""
    try:
        raw = log.read_bytes()[-65536:]
    except FileNotFoundError:
        return []
    return raw.decode("utf-8", "replace").splitlines()[-lines:]


def _indented(lines: list[str]) -> str:
    return "\n".join(f"  | {line}" for line in lines) or "  | (its log is empty)"
