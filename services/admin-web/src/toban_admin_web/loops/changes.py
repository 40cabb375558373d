"""One subscription of this process to the changes of the cluster, for all pages that are open; none while no page is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Set
from contextlib import contextmanager
from datetime import datetime

from toban_admin_web.ports.changes import Changes, ChangeSource, News
from toban_domain.errors import TobanError
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

# A coordinator ends a stream after an hour.
STREAM_SECONDS = 3000.0
RETRY_SECONDS = 1.0
# A coordinator answers at least each ten seconds; a feed that is silent for longer than this is broken.
SILENT_SECONDS = 25.0
# The subscription stays for a moment after the last page has left, since people go from page to page.
LINGER_SECONDS = 30.0
KEPT = 100

_log = get_logger(__name__)
_pages = metrics.gauge("toban_site_live_pages", "Open pages that follow the changes of the cluster.")
_subscribed = metrics.gauge("toban_site_change_feed_up", "1 while this process receives the changes of the cluster.")


class ChangeWatcher:
    """`wait` may be called by many threads."""

    def __init__(self, *, source: ChangeSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._changed = threading.Condition()
        self._kept: deque[tuple[int, datetime, Changes]] = deque(maxlen=KEPT)
        self._number = 0
        self._pages = 0
        self._left_at = self._received_at = float("-inf")
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the waits. The stream ends with the connections of the process."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    @property
    def number(self) -> int | None:
        """Differs after each change; None while changes do not arrive."""
        with self._changed:
            return self._number if self._is_live() else None

    @contextmanager
    def page(self, since: datetime) -> Iterator[int]:
        """As ChangeBoard.page."""
        with self._changed:
            self._pages += 1
            _pages.set(self._pages)
            self._changed.notify_all()
            number = self._number - sum(at >= since for _, at, _ in self._kept)
        try:
            yield number
        finally:
            with self._changed:
                self._pages -= 1
                self._left_at = self._clock.monotonic()
                _pages.set(self._pages)

    def wake(self) -> None:
        """As ChangeBoard.wake."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, seen: int, topics: Set[str], *, seconds: float, ended: threading.Event) -> News:
        """As ChangeBoard.wait."""
        ends_at = self._clock.monotonic() + seconds
        with self._changed:
            live = self._is_live()
            while True:
                news = News(self._number, self._touched(seen, topics), self._is_live())
                left = ends_at - self._clock.monotonic()
                if news.changed or news.live != live or left <= 0 or self._stopping or ended.is_set():
                    return news
                seen = self._number
                self._changed.wait(left)

    def _touched(self, seen: int, topics: Set[str]) -> bool:
        if self._number - seen > len(self._kept):
            return True
        return any(number > seen and one.touch(topics) for number, _, one in self._kept)

    def _is_live(self) -> bool:
        return self._clock.monotonic() - self._received_at < SILENT_SECONDS

    def _run(self) -> None:
        while self._wanted():
            try:
                for one in self._source.watch(seconds=STREAM_SECONDS):
                    self.publish(one)
                    if not self._has_pages():
                        break
            except TobanError as error:
                if self.number is not None:
                    _log.info("the feed of changes broke, retrying", error=error.message)
            except Exception:
                # The next subscription is the retry, whatever failed.
                _log.exception("the feed of changes failed")
            self._lose()
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, RETRY_SECONDS)

    def _wanted(self) -> bool:
        """Waits for a page; False when the process stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._pages > 0)
            return not self._stopping

    def _has_pages(self) -> bool:
        with self._changed:
            recent = self._clock.monotonic() - self._left_at < LINGER_SECONDS
            return not self._stopping and (self._pages > 0 or recent)

    def publish(self, one: Changes) -> None:
        """An answer of the feed."""
        with self._changed:
            was_live, self._received_at = self._is_live(), self._clock.monotonic()
            _subscribed.set(1)
            if not was_live:
                # What changed meanwhile is not known.
                one = Changes(frozenset({"runs", "cluster", "settings"}))
            if one.kinds:
                self._number += 1
                self._kept.append((self._number, self._clock.wall(), one))
            if one.kinds or not was_live:
                self._changed.notify_all()

    def _lose(self) -> None:
        """Nothing arrives until the next subscription; what changes meanwhile is not known."""
        with self._changed:
            self._received_at = float("-inf")
            _subscribed.set(0)
            self._changed.notify_all()
