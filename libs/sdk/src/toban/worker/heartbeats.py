"""Extends the claims of a worker three times in each lock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from toban.errors import TobanError
from toban.worker.site import Key, WorkSite
from toban.worker.step import Step, now

_log = logging.getLogger("toban.worker")
_AT_ONCE = 100
_RETRY_SECONDS = 0.5


class Heartbeats:
    """A thread. It runs until `close`, so that claims outlive a graceful stop of the rest. `on_failure` gets what else ends it."""

    def __init__(self, site: WorkSite, on_failure: Callable[[BaseException], None]) -> None:
        self._site = site
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._steps: dict[Key, Step] = {}
        self._next = float("inf")
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="toban-heartbeats", daemon=True)
        self._thread.start()

    def add(self, step: Step) -> None:
        """From now on its claim is extended."""
        with self._changed:
            self._steps[step.key] = step
            self._next = min(self._next, now() + _due_in(step))
            self._changed.notify()

    def confirm(self, steps: list[Step]) -> None:
        """Extends claims before their work begins. Those that are still lost afterwards must not begin."""
        if not steps:
            return
        sent = now()
        try:
            lost, cancelled = self._site.extend([step.key for step in steps], timeout=_timeout(steps))
        except TobanError as error:
            _log.warning("%d claims arrived late and are not extended: %s", len(steps), error)
            return
        for step in steps:
            if step.key in lost:
                step.lose()
            else:
                step.confirm(sent)
            if step.key in cancelled:
                step.cancel()

    def remove(self, step: Step) -> None:
        """Its claim is not extended any more."""
        with self._changed:
            self._steps.pop(step.key, None)

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._extend_all()
        except BaseException as error:
            self._on_failure(error)

    def _extend_all(self) -> None:
        while steps := self._due():
            lock = min(step.lock_seconds for step in steps)
            upcoming = now() + lock / 3
            for begin in range(0, len(steps), _AT_ONCE):
                if not self._extend(steps[begin : begin + _AT_ONCE], timeout=_timeout(steps)):
                    upcoming = now() + min(_RETRY_SECONDS, lock / 10)
            with self._changed:
                self._next = min(upcoming, self._next)

    def _due(self) -> list[Step]:
        """The steps whose claims are to be extended now; none = the end."""
        with self._changed:
            while not self._closed:
                if not self._steps:
                    self._next = float("inf")
                left = self._next - now()
                if left <= 0:
                    self._next = float("inf")
                    return list(self._steps.values())
                self._changed.wait(None if left == float("inf") else left)
            return []

    def _extend(self, steps: list[Step], timeout: float) -> bool:
        sent = now()
        try:
            lost, cancelled = self._site.extend([step.key for step in steps], timeout)
        except TobanError as error:
            # The claims hold until their ends; the next heartbeat may arrive.
            _log.warning("heartbeat of %d steps failed; retrying: %s", len(steps), error)
            return False
        for step in steps:
            if step.key in lost:
                step.lose()
                self.remove(step)
            else:
                # From when it was sent, never from when it was answered.
                step.extend(sent)
            if step.key in cancelled:
                step.cancel()
        return True


def _timeout(steps: list[Step]) -> float:
    return max(0.5, min(step.lock_seconds for step in steps) / 3)


def _due_in(step: Step) -> float:
    """Seconds until the first heartbeat: none when less than half of the lock remains."""
    return min(step.lock_seconds / 3, max(0.0, step.remaining_seconds - step.lock_seconds / 2))
