"""How many pages follow the changes of the cluster at a time: each one occupies a thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

# Of a person the newest ones stay: browsers do not say when they leave a page, and it is found out by the next event only.
PAGES_OF_A_PERSON = 8
# Between two reads of one page at least, milliseconds: of each page that is open beside it, and in all.
PAUSE_OF_A_PAGE, LEAST_PAUSE = 20, 1000


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """One page; `ended`: a newer one has its place."""

    person: str
    ended: threading.Event = field(default_factory=threading.Event)


class LivePages:
    """At most `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._places: list[Place] = []

    def take(self, person: str) -> Place | None:
        """A place, for which the oldest one of the person may end; None when all are taken."""
        with self._lock:
            mine = [one for one in self._places if one.person == person and not one.ended.is_set()]
            if len(mine) >= PAGES_OF_A_PERSON:
                mine[0].ended.set()
            if len(self._places) >= self._size:
                return None
            place = Place(person)
            self._places.append(place)
            return place

    @property
    def pause(self) -> int:
        """How long a page waits after a read before the next one, milliseconds: all pages together keep the site busy for a bounded share."""
        with self._lock:
            return max(LEAST_PAUSE, len(self._places) * PAUSE_OF_A_PAGE)

    def leave(self, place: Place) -> None:
        """The page is gone."""
        with self._lock:
            if place in self._places:
                self._places.remove(place)
