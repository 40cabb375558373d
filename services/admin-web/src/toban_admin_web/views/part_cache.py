"""Parts of pages for many open pages: what people with the same rights get within a moment is rendered once, until something changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from flask import Flask, Response, g, make_response, request

from toban_admin_web.decide.filters import wants_part
from toban_observability import metrics
from toban_runtime.clock import Clock

KEPT_SECONDS = 1.0
KEPT = 128
# Requests for one part wait for each other; so many locks are shared by all parts.
LOCKS = 64

_hits = metrics.counter(
    "toban_site_parts_total", "Parts of pages that were asked for, by result: kept or made.", ("result",)
)

Key = tuple[str, str, str, str]


class PartCache:
    """`number` differs after each change of the cluster; None while changes are not known."""

    def __init__(self, *, clock: Clock, number: Callable[[], int | None]) -> None:
        self._clock = clock
        self._number = number
        self._lock = threading.Lock()
        self._making = [threading.Lock() for _ in range(LOCKS)]
        self._kept: OrderedDict[Key, tuple[float, int | None, bytes]] = OrderedDict()

    def __len__(self) -> int:
        """How many parts are kept."""
        return len(self._kept)

    def install(self, app: Flask) -> None:
        """Answers parts of `app`; behind the gate, which has found out who asks."""
        app.before_request(self._answer)
        app.after_request(self._keep)
        app.teardown_request(lambda _error: self._release())

    def _answer(self) -> Response | None:
        person = g.get("person")
        if request.method != "GET" or person is None or not wants_part(request.args):
            return None
        key = (person.access or f"user {person.user}", person.role, str(g.get("language", "")), request.full_path)
        lock = self._making[hash(key) % LOCKS]
        lock.acquire()
        g.part_lock = lock
        body = self._fresh(key)
        _hits.labels("kept" if body is not None else "made").inc()
        if body is not None:
            g.part_key = None
            return make_response(body)
        g.part_key, g.part_number = key, self._number()
        return None

    def _keep(self, response: Response) -> Response:
        key = g.get("part_key")
        # Only what `page` has made of a template for parts: none of these names the person.
        if key is None or "is_part" not in g or response.status_code != 200 or "has_token" in g:
            return response
        with self._lock:
            self._kept[key] = (self._clock.monotonic(), g.part_number, response.get_data())
            self._kept.move_to_end(key)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return response

    def _release(self) -> None:
        lock = g.pop("part_lock", None)
        if lock is not None:
            lock.release()

    def _fresh(self, key: Key) -> bytes | None:
        with self._lock:
            made_at, number, body = self._kept.get(key, (float("-inf"), None, b""))
        fresh = self._clock.monotonic() - made_at < KEPT_SECONDS and number == self._number()
        return body if fresh else None
