"""The coordinator's boring pages: configuration, logs, then `run` until told to stop."""

from __future__ import annotations

from toban_coordinator.config import CoordinatorConfig
from toban_coordinator.main.run import run
from toban_domain.version import VERSION
from toban_observability import tracing
from toban_observability.logs import setup_logging
from toban_observability.metrics import build_info
from toban_runtime.config import load
from toban_runtime.lifecycle import run_service

SERVICE = "coordinator"


def main() -> int:
    """Run a coordinator; the exit code of the process."""
    config = load(CoordinatorConfig)
    setup_logging(SERVICE, config.log_format, config.log_level)
    build_info(SERVICE, VERSION)
    tracing.setup(SERVICE, VERSION)
    return run_service(lambda stop: run(config, stop, VERSION))
