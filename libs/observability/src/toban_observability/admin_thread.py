"""The admin port for synchronous services, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toban_observability.admin_port import AdminPort

STEP_SECONDS = 10.0


class AdminThread:
    """As AdminPort. Live means that the process can run threads; `health` is called from that thread."""

    def __init__(
        self, host: str, port: int, health: Callable[[], dict[str, Any]], *, token_file: Path | None = None
    ) -> None:
        self._port = AdminPort(host, port, health, token_file=token_file)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Binds and serves; returns the bound port. Raises OSError when the address is in use."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="admin-port", daemon=True)
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._port.start(), self._loop).result(STEP_SECONDS)

    def stop(self) -> None:
        """Stops listening and ends the thread; does nothing when it was not started."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._port.stop(), self._loop).result(STEP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STEP_SECONDS)
        self._loop.close()
        self._loop = self._thread = None
