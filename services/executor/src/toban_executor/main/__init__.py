"""Wires and runs one incarnation of the executor. `toban_executor.__main__` starts the guards before it imports this."""

import asyncio
from typing import TYPE_CHECKING

from toban_domain.version import VERSION
from toban_executor.ports.guards import Prepared
from toban_observability import metrics, tracing
from toban_runtime.lifecycle import Stop, run_service

if TYPE_CHECKING:
    from toban_executor.config import ExecutorConfig

SERVICE = "executor"


def main(config: "ExecutorConfig", prepared: Prepared) -> tuple[int, bool]:
    """Run one incarnation; the exit code, and whether the process should register again."""
    metrics.build_info(SERVICE, VERSION)
    tracing.setup(SERVICE, VERSION)
    again = False

    # Here, because a witness imports this package too, and is to start fast.
    from toban_executor.main.own_steps import own_steps
    from toban_executor.main.wiring import build

    async def run(stop: Stop) -> None:
        nonlocal again
        # It asks an engine or a cluster: the signal to stop is seen meanwhile.
        own = await asyncio.to_thread(own_steps, config, prepared, stopped=stop.is_set)
        again = await build(own).run(stop)

    code = run_service(run)
    tracing.shutdown()
    return code, again
