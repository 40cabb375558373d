"""H in a cron expression: a value of the field that is drawn from the schedule's name, so that many schedules spread by themselves.

The draw is SHA-256 over name and field: the same in every process and version, other for every name and field.
"""

from __future__ import annotations

import hashlib
import re

# What H alone means, by field (seconds first). The 29th to 31st are left out: every month fires.
RANGES = ((0, 59), (0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
# What H(low-high) may name.
LIMITS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_TERM = re.compile(r"H(?:\((\d{1,2})-(\d{1,2})\))?(?:/(\d{1,2}))?")


def uses_hash(part: str) -> bool:
    """True when a term of this field (upper case) is drawn."""
    return "H" in part and any(re.match(r"H([/(]|$)", term) for term in part.split(","))


def expand(part: str, index: int, seed: str) -> str | None:
    """The field `index` (0 = seconds) with each H replaced by numbers; None when an H is not written rightly."""
    terms = [_drawn(term, index, seed) if term.startswith("H") else term for term in part.split(",")]
    return None if None in terms else ",".join(term for term in terms if term is not None)


def backward_range(part: str) -> tuple[int, int] | None:
    """Start and end of the first H(start-end) whose start is greater; None when there is none."""
    for term in part.split(","):
        found = _TERM.fullmatch(term)
        if found and found[1] and int(found[1]) > int(found[2]):
            return int(found[1]), int(found[2])
    return None


def _drawn(term: str, index: int, seed: str) -> str | None:
    found = _TERM.fullmatch(term)
    if found is None:
        return None
    low, high = (int(found[1]), int(found[2])) if found[1] else RANGES[index]
    step = int(found[3]) if found[3] else None
    if not LIMITS[index][0] <= low <= high <= LIMITS[index][1] or step == 0:
        return None
    number = int.from_bytes(hashlib.sha256(f"{seed}\n{index}".encode()).digest()[:8])
    size = high - low + 1
    if step is None:
        return str(low + number % size)
    start = low + number % min(step, size)
    return f"{start}-{high}/{step}" if start + step <= high else str(start)
