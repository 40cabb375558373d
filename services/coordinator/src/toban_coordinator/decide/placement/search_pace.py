"""How often the leader searches an index from its beginning.

While a snapshot is open (pg_dump) the entries of runs that have ended stay in the indexes, and each search passes over all of them. So its cost grows
with the age of the snapshot, and a turn that searches each time would stop the leader in the end.
"""

import math
from collections import deque

QUICK_SECONDS = 0.003
"""A search that takes PostgreSQL no longer is made each time."""
SHARE = 200
"""A slow one is followed by a pause of so many times what it took beyond that."""
MOST_SECONDS = 2.0
"""The longest pause."""
_LOOKED_AT = 3


class SearchPace:
    """One kind of search, by PostgreSQL's clock: the least of the last few times counts, since a busy server makes one slow now and then."""

    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=_LOOKED_AT)
        self._at = -math.inf

    def took(self, at: float, seconds: float) -> None:
        """One began at `at` and took so long."""
        self._took.append(seconds)
        self._at = at

    @property
    def pause_seconds(self) -> float:
        """How far the next one has to be from the last one; 0 while it is quick."""
        least = min(self._took) if len(self._took) == _LOOKED_AT else 0.0
        return min(MOST_SECONDS, SHARE * max(0.0, least - QUICK_SECONDS))

    def waits(self, at: float) -> float:
        """Seconds until the next one may be made; 0 = now, also when the clock went back."""
        return 0.0 if at < self._at else max(0.0, self._at + self.pause_seconds - at)
