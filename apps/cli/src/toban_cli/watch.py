"""`--watch`: refreshes an output, in place on a terminal, below the last one on a pipe, until Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime
from typing import Annotated, Protocol

import typer

from toban_cli import report
from toban_cli.options import Format
from toban_cli.sanitize import clean
from toban_domain.errors import ErrorCode, TobanError

# What a bare --watch means, seconds between two refreshes.
WATCH_SECONDS = 2.0
# How long the cluster may be unreachable before the watch ends, seconds.
OUTAGE_SECONDS = 300.0

Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        "-w",
        min=0.1,
        max=86_400,
        metavar="[SECONDS]",
        help=f"Refresh at this interval in seconds (default: {WATCH_SECONDS:g}).",
    ),
]

_UNREACHABLE = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.RESOURCE_EXHAUSTED})
# Ages and durations: a table in which only they moved on has not changed.
_AGES = re.compile(r"\b(?:in )?\d+(?:\.\d+)?[smhd](?: \d+[smh])?(?: ago)?\b|\bnow\b")
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Time(Protocol):
    """The wall clock for people, and waiting. `wait` may raise KeyboardInterrupt: Ctrl-C ends a watch."""

    def now(self) -> datetime:
        """The time with its zone."""
        ...

    def wait(self, seconds: float) -> None:
        """Waits so long."""
        ...


class View(Protocol):
    """Where frames go."""

    def show(self, text: str, at: datetime) -> None:
        """Shows a frame."""
        ...

    def show_error(self, error: TobanError, at: datetime) -> None:
        """Shows why there is no new frame."""
        ...

    def close(self, text: str) -> None:
        """Ends; `text` is the last frame when nothing will change any more, else empty."""
        ...


def watch(
    refresh: Callable[[], bool | None],
    seconds: float | None,
    output: Format = Format.TABLE,
    *,
    view: View | None = None,
    time: Time | None = None,
) -> None:
    """Calls `refresh`, which prints; with `seconds` again and again, until it returns True or the caller presses Ctrl-C.

    Without `seconds` once. While no coordinator responds, the last frame stays and the error is shown; raises it after OUTAGE_SECONDS, and
    at once when the first call fails.
    """
    if seconds is None:
        refresh()
        return
    ticks = time or _SystemTime()
    shown, over = _frame(refresh)
    draws = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    target = view or (TerminalView(seconds) if draws else PipeView(output))
    try:
        target.show(shown, ticks.now())
        _repeat(refresh, seconds, target, ticks, over)
    except KeyboardInterrupt:
        target.close("")
    except BaseException:
        target.close("")
        raise


def _repeat(refresh: Callable[[], bool | None], seconds: float, view: View, time: Time, over: bool) -> None:
    shown, outage = "", 0.0
    while not over:
        time.wait(seconds)
        try:
            shown, over = _frame(refresh)
        except TobanError as error:
            outage += seconds
            if error.code not in _UNREACHABLE or outage > OUTAGE_SECONDS:
                raise
            view.show_error(error, time.now())
            continue
        outage = 0.0
        view.show(shown, time.now())
    view.close(shown)


def _frame(refresh: Callable[[], bool | None]) -> tuple[str, bool]:
    """What a refresh prints, and whether it was the last one."""
    page = _Page(terminal=sys.stdout.isatty())
    with redirect_stdout(page):
        over = refresh()
    return page.getvalue(), bool(over)


class _Page(io.StringIO):
    """Collects a frame; tables fit it to the terminal that it will be shown on."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class TerminalView:
    """Draws over the last frame on the alternate screen, so that what was on the terminal comes back at the end."""

    def __init__(self, seconds: float, *, size: Callable[[], tuple[int, int]] = shutil.get_terminal_size) -> None:
        self._title = f"every {seconds:g}s, Ctrl-C ends"
        self._size = size
        self._text = ""
        self._since: datetime | None = None
        _write(_ENTER)

    def show(self, text: str, at: datetime) -> None:
        """Draws a frame."""
        self._text, self._since = text, None
        self._draw(at, "")

    def show_error(self, error: TobanError, at: datetime) -> None:
        """Keeps the last frame below the error and its age."""
        self._since = self._since or at
        self._draw(at, f"error: {clean(error.message)} (since {self._since:%H:%M:%S}; retrying)")

    def close(self, text: str) -> None:
        """Gives the terminal back, and leaves the last frame there."""
        _write(_LEAVE + text)

    def _draw(self, at: datetime, trouble: str) -> None:
        width, height = self._size()
        head = [f"{at:%H:%M:%S}  {self._title}"[:width], *([trouble[:width]] if trouble else []), ""]
        body = self._text.splitlines()
        room = max(1, height - len(head) - 1)
        if len(body) > room:
            body = [*body[: room - 1], f"… {len(body) - room + 1} more lines"]
        _write(_HOME + "".join(f"{line}{_END_OF_LINE}\r\n" for line in [*head, *body]) + _END_OF_SCREEN)


class PipeView:
    """Prints what changed: tables below a line with the time, JSON and names as they are, YAML as further documents."""

    def __init__(self, output: Format) -> None:
        self._output = output
        self._last: str | None = None
        self._complaint = ""

    def show(self, text: str, at: datetime) -> None:
        """Prints a frame that differs from the last."""
        self._complaint = ""
        people = not self._output.is_data
        essence = " ".join(_AGES.sub("", text).split()) if people else text
        if essence == self._last:
            return
        if self._output is Format.YAML:
            report.echo("---")
        elif self._output in (Format.TABLE, Format.WIDE):
            report.echo(f"--- {at:%Y-%m-%d %H:%M:%S}")
        self._last = essence
        report.echo(text.rstrip("\n"))

    def show_error(self, error: TobanError, at: datetime) -> None:
        """Prints it once on stderr."""
        if error.message != self._complaint:
            self._complaint = error.message
            report.note(f"error: {error.message} (at {at:%H:%M:%S}; retrying)")

    def close(self, text: str) -> None:
        """Nothing is open."""


class _SystemTime:
    def now(self) -> datetime:
        """Local time."""
        from toban_runtime.clock import SystemClock

        return SystemClock().wall().astimezone()

    def wait(self, seconds: float) -> None:
        """Waits on an event that is never set: Ctrl-C gets through."""
        import threading

        threading.Event().wait(seconds)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
