"""The coordinator's boring pages: configuration, logs, then `run` until told to stop."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main import reset_epochs
from toban_coordinator.main.run import run
from toban_domain.version import VERSION
from toban_observability import tracing
from toban_observability.logs import setup_logging
from toban_observability.metrics import build_info
from toban_runtime.config import load
from toban_runtime.lifecycle import run_service

SERVICE = "coordinator"
# Exit code for unknown arguments (EX_USAGE).
EXIT_USAGE = 64


def main(arguments: Sequence[str] = ()) -> int:
    """Run a coordinator, or the one command that there is; the exit code of the process."""
    if list(arguments) not in ([], ["reset-epochs"]):
        sys.stderr.write(f"unknown arguments: {' '.join(arguments)}; the only command is reset-epochs\n")
        return EXIT_USAGE
    config = load(CoordinatorConfig)
    setup_logging(SERVICE, config.log_format, config.log_level)
    if arguments:
        return reset_epochs.main(config)
    build_info(SERVICE, VERSION)
    tracing.setup(SERVICE, VERSION)
    return run_service(lambda stop: run(config, stop, VERSION))
