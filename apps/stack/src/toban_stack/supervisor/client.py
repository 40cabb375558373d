"""The launcher's side of the supervisor: starts it, gives it programs, stops it."""

import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toban_stack.errors import ProcessFailed, StackError
from toban_stack.processes import ProcessRecord, Program, alive, python_program, stop
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile, read_record
from toban_stack.supervisor.policy import Backoff
from toban_stack.wait import wait_until

SUPERVISOR = "supervisor"
READY_SECONDS = 30.0
RESPONSE_SECONDS = 30.0


class Supervision:
    """Starts processes by the supervisor of a stack; directly when none runs and `backoff` is None."""

    def __init__(
        self, *, home: StackPaths, records: StateFile, environment: Mapping[str, str], backoff: Backoff | None
    ) -> None:
        self._home = home
        self._records = records
        self._environment = environment
        self._backoff = backoff

    def running(self) -> ProcessRecord | None:
        """The supervisor's record while it runs."""
        return self._records.running(SUPERVISOR)

    def start(self) -> None:
        """Starts the supervisor, without waiting for it, when there should be one and none runs."""
        if self._backoff is None or self.running():
            return
        times = (self._backoff.first_seconds, self._backoff.longest_seconds, self._backoff.reset_seconds)
        program = Program(
            name=SUPERVISOR,
            role=SUPERVISOR,
            argv=python_program("-m", "toban_stack.supervisor", str(self._home.root), *(f"{one:g}" for one in times)),
            environment=self._environment,
            log=self._home.log_file(SUPERVISOR),
            leftovers=(str(self._home.supervisor_socket),),
        )
        self._records.launch(program)

    def launch(self, program: Program) -> ProcessRecord:
        """The process of that name when it runs, else a new one. Raises StackError when it cannot be started."""
        self.start()
        supervisor = self.running()
        if supervisor is None:
            return self._records.launch(program)
        row = {**asdict(program), "log": str(program.log)}
        return read_record(_request(self._home, supervisor, {"command": "supervise", "program": row})["record"])

    def release(self, names: Iterable[str]) -> None:
        """These are not restarted any more: the caller stops them."""
        supervisor = self.running()
        if supervisor is not None:
            _request(self._home, supervisor, {"command": "release", "names": list(names)})

    def stop(self) -> list[str]:
        """Stops the supervisor; its processes continue to run. Returns a line about it, if there was one."""
        record = self._records.get(SUPERVISOR)
        if record is None:
            return []
        how = stop(record, family=False)
        self._records.remove(SUPERVISOR)
        return [f"{SUPERVISOR} {how}"]


def _request(home: StackPaths, supervisor: ProcessRecord, request: Mapping[str, Any]) -> dict[str, Any]:
    """The supervisor's response. Raises StackError when it has none, or an error."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(RESPONSE_SECONDS)
        _connect(connection, home.supervisor_socket, supervisor)
        try:
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                response: dict[str, Any] = json.loads(lines.readline())
        except (OSError, ValueError) as error:
            raise StackError(
                f"the supervisor (pid {supervisor.pid}) does not respond ({error}): `kill -9 {supervisor.pid}`, then repeat "
                f"the command; its log: {supervisor.log}"
            ) from error
    if "error" in response:
        raise StackError(response["error"])
    return response


def _connect(connection: socket.socket, path: Path, supervisor: ProcessRecord) -> None:
    def connected() -> bool:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    log = Path(supervisor.log)
    tried = wait_until(lambda: connected() or not alive(supervisor), READY_SECONDS)
    if not alive(supervisor):
        raise ProcessFailed(name=SUPERVISOR, reason="ended while starting", log=log)
    if not tried:
        raise ProcessFailed(name=SUPERVISOR, reason=f"was not ready within {READY_SECONDS:g} s", log=log)
