"""Start and end of a process: signals, the stop event, exit codes, the ready file."""

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from toban_domain.errors import TobanError
from toban_observability.logs import get_logger
from toban_runtime.open_files import raise_open_files

EXIT_OK = 0
"""Asked to stop, and stopped in order."""
EXIT_SOFTWARE = 70
"""Ended by an error that nothing caught (EX_SOFTWARE)."""

_GC_THRESHOLDS = (20_000, 20, 20)
"""Allocations before a collection, and collections of each generation before the next one. A service makes some thousand objects in each turn of its
event loop and few cycles: at Python's default of 700 the collector takes several percent of its CPU time."""

_log = get_logger(__name__)


class Stop(asyncio.Event):
    """Set once when the process is to end; `reason` says by what (a signal's name, or a component)."""

    reason: str = ""

    def request(self, reason: str) -> None:
        """Ask for the stop; the first reason stays."""
        if not self.is_set():
            self.reason = reason
            self.set()


def run_service(main: Callable[[Stop], Coroutine[Any, Any, None]]) -> int:
    """Run `main(stop)` until it returns and give the exit code of the process.

    The process may open as many files as the machine allows.
    SIGTERM and SIGINT set `stop`; `main` then ends in order and the code is 0. A second signal cancels `main`.
    A TobanError gives its exit code (a ConfigError 78) and one line on stderr; any other error is logged and gives 70.
    """
    raise_open_files()
    # What is imported by now lives as long as the process: no collection needs to visit it.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        asyncio.run(_supervise(main))
    except TobanError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except asyncio.CancelledError:
        _log.warning("shutdown interrupted before cleanup finished", cause="second signal")
        return EXIT_SOFTWARE
    except Exception:
        _log.exception("service failed")
        return EXIT_SOFTWARE
    return EXIT_OK


async def _supervise(main: Callable[[Stop], Coroutine[Any, Any, None]]) -> None:
    stop = Stop()
    task = asyncio.ensure_future(main(stop))
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            task.cancel()
        _log.info("stop requested", signal=number.name, repeated=stop.is_set())
        stop.request(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def write_ready_file(path: Path | None, *, admin_port: int, pid: int = 0, **ports: int) -> None:
    """Write the file that shows a launcher that this process serves, and where (`grpc_port=`, `http_port=`). The write is atomic.

    `pid` is the process that the launcher started, when this one is its child. No path, no file.
    """
    if path is None:
        return
    part = path.with_name(path.name + f".{os.getpid()}.part")
    part.write_text(json.dumps({**ports, "admin_port": admin_port, "pid": pid or os.getpid()}) + "\n")
    part.replace(path)
