"""What would be said again and again, such as by libraries while something is away, is said once in a while."""

import logging
from collections.abc import Hashable

EVERY_SECONDS = 30.0
# Things that are remembered; a library has a handful of texts, about a handful of things each.
MOST_KEPT = 200


class Once:
    """Says of each thing whether it is to be told now: at most once each EVERY_SECONDS."""

    def __init__(self) -> None:
        # The thing → when it was told last, and how often it was not since.
        self._told: dict[Hashable, tuple[float, int]] = {}

    def left_out(self, thing: Hashable, now: float) -> int | None:
        """How often it was not told since it was told last; None when it is not to be told now. `now` in seconds, of one clock."""
        at, left_out = self._told.get(thing, (None, 0))
        # A clock that was set back is no reason to be silent.
        if at is not None and 0 <= now - at < EVERY_SECONDS:
            self._told[thing] = at, left_out + 1
            return None
        if len(self._told) >= MOST_KEPT:
            self._told.clear()
        self._told[thing] = now, 0
        return left_out


class Seldom(logging.Filter):
    """Lets a library's record pass at most each EVERY_SECONDS by its template and what it is about (its first value, such as the name of a
    pool), and says how many like it were not shown."""

    def __init__(self) -> None:
        super().__init__()
        self._once = Once()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        about = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        left_out = self._once.left_out((str(record.msg), str(about)), record.created)
        if left_out:
            record.msg = f"{record.msg} ({left_out} more like this were not shown)"
        return left_out is not None
