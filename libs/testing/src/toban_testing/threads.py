"""Threads of a test that go on beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Threads that go on until `stop`; each looks at `stopping`. `check` raises the first error that ended one."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, what: Callable[[], None]) -> None:
        """A thread for `what`."""

        def run() -> None:
            try:
                what()
            except BaseException as error:  # raised by `check`
                self._errors.append(error)

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def stop(self) -> None:
        """Ask every thread to end, and wait."""
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def check(self) -> None:
        """Raises what ended a thread."""
        if self._errors:
            raise self._errors[0]
