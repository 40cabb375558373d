"""Background threads of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Threads that run until `stop`; each checks `stopping`. `check` raises the first error of a thread."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, what: Callable[[], None]) -> None:
        """Runs `what` in a thread."""

        def run() -> None:
            try:
                what()
            except BaseException as error:  # raised by `check`
                self._errors.append(error)

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def stop(self) -> None:
        """Requests every thread to end, and waits."""
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Raises the first error that ended a thread."""
        if self._errors:
            raise self._errors[0]
