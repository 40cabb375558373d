"""The output of a pod as the output of its step: followed, resumed where a stream broke, each line once."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable
from datetime import datetime

from toban_executor.adapters.kubernetes_client import Api, ApiError

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


class PodLog:
    """One container's. `write` gets each line; `retry` is called, and waits, when a stream broke."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        pod: str,
        container: str,
        write: Callable[[bytes], None],
        retry: Callable[[ApiError], None],
    ) -> None:
        self._api = api
        self._place = namespace, pod, container
        self._write = write
        self._retry = retry
        # The time of the last line: its second as the API has it, and to order lines; lines with this very time that were written.
        self._since = ""
        self._last = (0.0, 0)
        self._written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> bool:
        """The container has ended: wait for its last line; False when it has not come in time."""
        self._ended.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _follow(self) -> None:
        while True:
            # A stream that began before the end may have broken without a sign: only one that began after it is known to be whole.
            last = self._ended.is_set()
            try:
                self._read()
            except ApiError as error:
                if error.status == http.client.NOT_FOUND:
                    return
                if error.status != http.client.BAD_REQUEST or last:
                    self._retry(error)
                    continue
                # The container has not been started yet.
                self._ended.wait(1)
            else:
                if last:
                    return
                self._ended.wait(0.2)

    def _read(self) -> None:
        skip = self._written
        for line in self._api.log(*self._place, self._since):
            found = _STAMP.match(line)
            if found is None:
                self._write(line)
                continue
            second = f"{found[1].decode()}{found[3].decode()}"
            at = (
                datetime.fromisoformat(second.replace("Z", "+00:00")).timestamp(),
                int((found[2] or b"").ljust(9, b"0")),
            )
            if at < self._last:
                continue
            if at == self._last:
                # Of an earlier stream: written already.
                if skip:
                    skip -= 1
                    continue
                self._written += 1
            else:
                self._since, self._last, self._written, skip = second, at, 1, 0
            self._write(line[found.end() :])
