"""A log-archiver as it is, which kills itself (SIGKILL) right before a step of its passes. The variable KILL_AT names the step (none: it lives),
TARGET_BYTES makes its objects smaller.

Usage, with this folder on PYTHONPATH: KILL_AT=manifest python -m stepping_archiver
"""

import os
import signal
import sys
from functools import partial

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from toban_log_archiver.app.archive_pass import ArchiveLimits
from toban_log_archiver.app.archive_steps import StepDeps
from toban_log_archiver.main import Factories, run


def before_step(step: str) -> None:
    """Gets the name of each step right before it."""
    if step == os.environ.get("KILL_AT"):
        os.kill(os.getpid(), signal.SIGKILL)


def limits() -> ArchiveLimits:
    """As the variables say."""
    size = os.environ.get("TARGET_BYTES")
    return ArchiveLimits(target_bytes=int(size)) if size else ArchiveLimits()


if __name__ == "__main__":
    sys.exit(run(Factories(steps=partial(StepDeps, before_step=before_step), limits=limits)))
