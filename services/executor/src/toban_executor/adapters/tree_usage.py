"""What the processes below a slot supervisor use, by /proc."""

import os
from pathlib import Path

from toban_executor.decide.usage import Measured
from toban_executor.guard.process_tree import descendants

TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree_usage(supervisor: int, since: int) -> Measured:
    """Of the processes of its attempt, whose first one began at `since` (clock ticks since boot). What is older belongs to the slot: its sandbox
    and its zygotes."""
    ticks = pages = processes = 0
    for pid in descendants(supervisor):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b") ", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[19]) < since:
            continue
        # Its own time in user and kernel mode, and that of the children that it has reaped.
        ticks += sum(map(int, fields[11:15]))
        pages += int(fields[21])
        processes += 1
    return Measured(ticks / TICKS, pages * _PAGE, processes)
