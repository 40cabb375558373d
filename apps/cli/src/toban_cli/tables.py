"""Tables that never wrap: on a terminal the widest loose column gives way, elsewhere lines are as long as they must be.

A very long cell before the last is also cut when stdout is not a terminal: one such cell would pad every row. Its whole text is in -o json.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from unicodedata import category, east_asian_width

from toban_cli.formatting import STATE_STYLES
from toban_cli.report import echo
from toban_cli.sanitize import clean

# Wide enough for any row that is not shown on a terminal.
_ENDLESS = 100_000
# Spaces between columns.
_GAP = 2
# Columns of a loose cell off a terminal, unless it is the last of its row.
_PADDED = 120
_CODES = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    loose: Sequence[str] = (),
    names: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Prints rows under headers; columns named in `loose` may be cut with … to fit a terminal, those in `names` only when that is not enough.

    `empty` is printed when there is no row.
    """
    if not rows:
        echo(empty)
        return
    echo(render(headers, rows, loose=loose, names=names, width=terminal_width(), colour=_has_colours()), drawn=True)


def render(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    loose: Sequence[str],
    width: int | None,
    colour: bool,
    names: Sequence[str] = (),
) -> str:
    """The table as text; `width` None = as wide as needed."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = _widths(headers, cells, loose=loose, names=names, width=width)
    lines = [_line(headers, widths, lambda _: "bold" if colour else "")]
    lines += [_line(row, widths, lambda cell: STATE_STYLES.get(cell, "") if colour else "") for row in cells]
    return "\n".join(lines)


def shown_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(char) in "WF" else 0 if category(char) in ("Mn", "Me") else 1 for char in text)


def _line(cells: Sequence[str], widths: Sequence[int], style: Callable[[str], str]) -> str:
    parts = []
    for cell, width in zip(cells, widths, strict=True):
        shown = _cut(cell, width)
        code = _CODES.get(style(cell), "")
        parts.append((f"\x1b[{code}m{shown}\x1b[0m" if code else shown) + " " * (width - shown_width(shown)))
    return (" " * _GAP).join(parts).rstrip()


def _cut(text: str, width: int) -> str:
    """The text, its end replaced by … when it is too wide."""
    if shown_width(text) <= width:
        return text
    while text and shown_width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def _widths(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    loose: Sequence[str],
    names: Sequence[str],
    width: int | None,
) -> list[int]:
    """As wide as the widest cell. While that is too much the widest loose column gives way, down to its header, and then the names, where
    that helps: they are typed into the next command.
    """
    widths = [max(len(header), *(shown_width(row[index]) for row in rows)) for index, header in enumerate(headers)]
    if width is None:
        last = len(headers) - 1
        widths = [
            min(wide, _PADDED) if header in {*loose, *names} and at < last else wide
            for at, (header, wide) in enumerate(zip(headers, widths, strict=True))
        ]
    room = (width or _ENDLESS) - _GAP * (len(headers) - 1)
    _narrow(widths, headers, room, loose)
    if sum(widths) - sum(_spare(widths, headers, names).values()) <= room:
        _narrow(widths, headers, room, names)
    return widths


def _narrow(widths: list[int], headers: Sequence[str], room: int, giving: Sequence[str]) -> None:
    while sum(widths) > room and (spare := _spare(widths, headers, giving)):
        widths[max(spare, key=lambda index: (widths[index], index))] -= 1


def _spare(widths: Sequence[int], headers: Sequence[str], giving: Sequence[str]) -> dict[int, int]:
    """By column, how much narrower it may become."""
    return {
        index: widths[index] - len(header)
        for index, header in enumerate(headers)
        if header in giving and widths[index] > len(header)
    }


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints one thing as `name: value` lines; empty values are left out."""
    shown = [(name, clean(value)) for name, value in pairs if value]
    widest = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        echo(f"{name + ':':<{widest + 2}}{value}")


def _has_colours() -> bool:
    """On a terminal that can show them, unless NO_COLOR asks for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """Columns of the terminal; None when stdout is not a terminal."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
