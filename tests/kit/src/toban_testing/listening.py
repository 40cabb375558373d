"""Where a process listens, as the kernel shows it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"


def listening_ports(pid: int) -> Iterator[int]:
    """The TCP ports at which a process listens."""
    sockets = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(one.readlink()))
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in sockets:
            yield int(fields[1].partition(":")[2], 16)
