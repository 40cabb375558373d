"""Tables that never wrap: on a terminal the widest loose column gives way, elsewhere every line is as long as it must be."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from toban_cli.human import STATE_STYLES
from toban_cli.report import say

# Wide enough for any row that is not shown on a terminal.
_ENDLESS = 100_000
# Spaces between columns.
_GAP = 2


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, loose: Sequence[str] = (), empty: str = "") -> None:
    """Prints rows under headers; columns named in `loose` may be cut with … to fit a terminal. `empty` is said when there is no row."""
    if not rows:
        say(empty)
        return
    say(render(headers, rows, loose=loose, width=_terminal_width(), colour=sys.stdout.isatty()))


def render(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, loose: Sequence[str], width: int | None, colour: bool
) -> str:
    """The table as text; `width` None = as wide as needed."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = _widths(headers, rows, loose=loose, width=width)
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold" if colour else "")
    for header, column in zip(headers, widths, strict=True):
        grid.add_column(header, no_wrap=True, overflow="ellipsis", width=column)
    for row in rows:
        grid.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "") if colour else "") for cell in row))
    out = io.StringIO()
    console = Console(
        file=out,
        width=width or _ENDLESS,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
    )
    console.print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _widths(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, loose: Sequence[str], width: int | None
) -> list[int]:
    """As wide as the widest cell; while that is too much the widest loose column gives way, down to its header."""
    widths = [max(len(header), *(len(row[index]) for row in rows)) for index, header in enumerate(headers)]
    room = (width or _ENDLESS) - _GAP * (len(headers) - 1)
    while sum(widths) > room:
        spare = [
            (widths[index], index)
            for index, header in enumerate(headers)
            if header in loose and widths[index] > len(header)
        ]
        if not spare:
            break
        widths[max(spare)[1]] -= 1
    return widths


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints one thing as `name: value` lines; empty values are left out."""
    shown = [(name, value) for name, value in pairs if value]
    widest = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name + ':':<{widest + 2}}{value}")


def _terminal_width() -> int | None:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
