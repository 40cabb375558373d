"""``python -m toban_executor drain``: the executor of this state directory takes no new work; back when its jobs have ended.

For stopping executors in two steps, such as from a preStop hook: the SIGTERM afterwards has nothing to wait for. Until it
comes, the executor stays as it is, with its outcomes delivered. Its /healthz says how far it is, for the token of the admin port.
"""

import http.client
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters.control_file import request_drain
from toban_executor.config import ExecutorConfig
from toban_observability import admin_token
from toban_runtime.config import ConfigError, load

POLL_SECONDS = 0.25
ANSWER_SECONDS = 5.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def main(write: Callable[[str], object] = sys.stderr.write) -> int:
    """Drain and wait; the exit code. How long jobs may go on is the executor's own SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS."""
    try:
        return _drain(load(ExecutorConfig), write)
    except TobanError as error:
        write(f"{error}\n")
        return error.exit_code


def _drain(config: ExecutorConfig, write: Callable[[str], object]) -> int:
    """Raises TobanError when there is no executor, or none that answers with this token."""
    assert config.state_dir is not None
    token_file = config.admin_token_file
    if token_file is None:
        # Before the executor is asked: a drain that cannot be watched would look like one that has failed.
        raise ConfigError(
            f"{admin_token.SETTING}: not set in the environment; set it as for the executor, whose /healthz shows when its jobs have ended"
        )
    port = request_drain(config.state_dir.absolute())
    host = _ANY.get(config.admin_host, config.admin_host)
    before, pause = "", threading.Event()
    while (busy := _busy(host, port, token_file)) is not None:
        if busy and busy != before:
            write(f"draining, {busy} slots busy\n")
        if busy.startswith("0/"):
            write("drained: nothing runs here any more\n")
            return 0
        before = busy
        pause.wait(POLL_SECONDS)
    write("the executor has ended\n")
    return 0


def _busy(host: str, port: int, token_file: Path) -> str | None:
    """Slots with a job and slots in all, `2/8`; empty while the executor may still take work or does not answer, None when it has ended.

    Raises TobanError PERMISSION_DENIED when the executor has another token.
    """
    try:
        checks = _health(host, port, admin_token.read_token(token_file))["checks"]
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    return str(checks["slots"]["value"]) if checks["draining"]["value"] else ""


def _health(host: str, port: int, token: bytes) -> Any:
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": "localhost", "Authorization": b"Bearer " + token})
        response = connection.getresponse()
        if response.status == http.client.UNAUTHORIZED:
            reason = response.read().decode().strip()
            raise TobanError(ErrorCode.PERMISSION_DENIED, f"it drains, but its /healthz cannot be read: {reason}")
        return json.loads(response.read())
    finally:
        connection.close()
