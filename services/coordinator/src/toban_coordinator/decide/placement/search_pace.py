"""How often the leader searches an index from its beginning.

While a snapshot is open (pg_dump) the entries of runs that have ended stay in the indexes, and each search passes over all of them. So its cost grows
with the age of the snapshot, and a turn that searches each time would stop the leader in the end.
"""

from collections import deque

QUICK_SECONDS = 0.002
"""A search that takes no longer is made each time."""
SHARE = 50
"""A slow one is followed by a pause of so many times what it took beyond that."""
_LOOKED_AT = 3


class SearchPace:
    """What a search takes, by a monotonic clock: the least of the last few times, since a busy machine makes one slow now and then."""

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._took: deque[float] = deque(maxlen=_LOOKED_AT)
        self._ended = 0.0

    def took(self, began: float, ended: float) -> None:
        """It was made."""
        self._took.append(ended - began)
        self._ended = ended

    @property
    def pause_seconds(self) -> float:
        """How long the next one has to wait after this one; 0 while it is quick."""
        least = min(self._took) if len(self._took) == _LOOKED_AT else 0.0
        return self._share * max(0.0, least - QUICK_SECONDS)

    def waits(self, at: float) -> float:
        """Seconds until the next one may be made; 0 = now."""
        return max(0.0, self._ended + self.pause_seconds - at)
