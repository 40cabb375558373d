"""Entry of the executor: ``python -m toban_executor``. Guards first: gRPC must not be loaded when they start."""

import os
import sys

from toban_domain.errors import TobanError
from toban_domain.settings import Settings
from toban_executor.adapters.state_dir import StateDir, kept_slots
from toban_executor.config import ExecutorConfig
from toban_executor.guard.launch import start_guards
from toban_executor.guard.leftovers import settle
from toban_observability.logs import setup_logging
from toban_runtime.config import load
from toban_runtime.ids import IdSource


def main() -> int:
    """One incarnation. When it is over and the process should go on, the process executes itself anew: new guards, no old state."""
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    config = load(ExecutorConfig)
    setup_logging("executor", config.log_format, config.log_level)
    assert config.state_dir is not None
    state = StateDir(config.state_dir.absolute())
    try:
        state.lock()
        settled = settle(state.path)
        slots = config.slots or kept_slots(state.path) or Settings().whole("max_jobs_per_worker")
        guards = start_guards(incarnation=IdSource().uuid(), state_dir=state.path, slots=slots)
    except TobanError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code

    from toban_executor.main import Prepared
    from toban_executor.main import main as run

    code, again = run(config, Prepared(state_dir=state.path, guards=guards, settled=settled))
    if code == 0 and again:
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)
    return code


if __name__ == "__main__":
    sys.exit(main())
