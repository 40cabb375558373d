"""Lines and tables on the terminal."""

import os
import sys
from collections.abc import Sequence


def print_lines(*lines: str) -> None:
    """Prints each line and flushes, so that progress is visible at once. Without a reader (`| head`) lines are discarded."""
    try:
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def columns(table: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, with its cells padded to columns."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
