"""An executor as a real process, without the rest of a stack."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from toban_executor.guard.process_tree import children, has_argument, with_environment
from toban_testing.admin_port import token_file


class ExecutorProcess:
    """`python -m toban_executor` as a test starts it."""

    def __init__(self, *, tls: Path, state: Path, coordinators: str, log_archivers: str = "", **more: str) -> None:
        self.ready = state.parent / f"{state.name}.ready"
        self.state = state
        base = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDULER_")}
        self.env = base | {
            "SCHEDULER_TLS_DIR": str(tls / "executor"),
            "SCHEDULER_STATE_DIR": str(state),
            "SCHEDULER_COORDINATORS": coordinators,
            "SCHEDULER_LOG_ARCHIVERS": log_archivers,
            "SCHEDULER_SLOTS": "4",
            "SCHEDULER_ISOLATION": "shared",
            "SCHEDULER_READY_FILE": str(self.ready),
            "SCHEDULER_ADMIN_TOKEN_FILE": str(token_file(state.parent)),
            "SCHEDULER_LOG_FORMAT": "json",
            "SECRET_OF_EXECUTOR": "must not leak",
        }
        self.env |= more
        self.log_file = state.parent / f"{state.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        # What starts it, such as `prlimit`.
        self.prefix: tuple[str, ...] = ()
        self.module = "toban_executor"
        self.arguments: tuple[str, ...] = ()

    def start(self) -> None:
        """Start, without waiting."""
        self.ready.unlink(missing_ok=True)
        log = self.log_file.open("ab")
        command = [*self.prefix, sys.executable, "-m", self.module, *self.arguments]
        self.process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        log.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def address(self) -> str:
        """Where it serves now."""
        return f"127.0.0.1:{json.loads(self.ready.read_text())['grpc_port']}"

    def log(self) -> str:
        """What it has logged."""
        return self.log_file.read_text()

    def forget_log(self) -> None:
        """It appends to the file: `log` has what it logs from now on."""
        os.truncate(self.log_file, 0)

    def stop(self) -> None:
        """End it for good."""
        if self.process is not None:
            self.kill_without_witness()

    def kill_without_witness(self) -> None:
        """Kill it together with its guard supervisor, so that no witness is started; the slot supervisors end their jobs."""
        assert self.process is not None
        if self.process.poll() is None:
            for pid in children(self.pid):
                os.kill(pid, signal.SIGKILL)
            self.process.kill()
        self.process.wait()

    def witnesses(self) -> list[int]:
        """Processes that act as witness for this state directory."""
        marker = f"SCHEDULER_STATE_DIR={self.state}".encode()
        return [pid for pid in with_environment(marker) if has_argument(pid, b"witness")]
