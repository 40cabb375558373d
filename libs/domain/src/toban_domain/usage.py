"""What the processes of an attempt use."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class UsageSample(NamedTuple):
    """At one moment: CPU time since the attempt began, resident memory, and how many processes there are."""

    at: datetime
    cpu_seconds: float
    memory_bytes: int
    processes: int
