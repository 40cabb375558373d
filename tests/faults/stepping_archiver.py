"""A log-archiver as it is, which kills itself (SIGKILL) right before a step of its passes. The variable KILL_AT names the step (none: it lives),
TARGET_BYTES makes its objects smaller.

Usage, with this folder on PYTHONPATH: KILL_AT=manifest python -m stepping_archiver
"""

import os
import signal
import sys
from functools import partial

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from toban_log_archiver import main as service
from toban_log_archiver.loops.archive import ArchiverDeps
from toban_log_archiver.loops.archive_steps import StepDeps


def passing(step: str) -> None:
    """Hears the name of each step right before it is done."""
    if step == os.environ.get("KILL_AT"):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    service.StepDeps = partial(StepDeps, passing=passing)  # type: ignore[assignment, misc]
    if size := os.environ.get("TARGET_BYTES"):
        service.ArchiverDeps = partial(ArchiverDeps, target_bytes=int(size))  # type: ignore[assignment, misc]
    sys.exit(service.run())
