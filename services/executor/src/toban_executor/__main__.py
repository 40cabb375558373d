"""Entry of the executor: ``python -m toban_executor``. Guards first: gRPC must not be loaded when they start.

``python -m toban_executor drain`` makes the running one accept no new work, and waits for its jobs. ``witness`` is what guards start when their
executor has died.
"""

import os
import sys
from collections.abc import Sequence

from toban_domain.errors import TobanError
from toban_executor.adapters.initial_slots import start_slots
from toban_executor.adapters.state_dir import StateDir
from toban_executor.decide.warm import WarmLimits
from toban_executor.guard.kernel import keep_untraced
from toban_executor.guard.launch import GuardSet, start_guards
from toban_executor.guard.reap_previous import end_previous
from toban_observability.logs import setup_logging
from toban_runtime.ids import IdSource
from toban_runtime.open_files import raise_open_files, set_open_files

HELP = """usage: python -m toban_executor [drain | watch]

Without an argument: start an executor, whose settings are the variables SCHEDULER_... (docs/operations.md).
watch: start an executor as a child, as the first process of its container, and let it go on when a job stops it.
drain: the running executor of SCHEDULER_STATE_DIR takes no new work; wait for its jobs.
"""


def main() -> int:
    """One incarnation. When it is over and the process should go on, the process re-executes itself: new guards, no old state."""
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    # Here, because a witness comes this way too: it needs no settings, and is to start fast.
    from toban_executor.adapters.isolation import chosen
    from toban_executor.config import ExecutorConfig
    from toban_runtime.config import load

    config = load(ExecutorConfig)
    setup_logging("executor", config.log_format, config.log_level)
    assert config.state_dir is not None
    state = StateDir(config.state_dir.absolute())
    files = raise_open_files()
    warm = WarmLimits(
        zygotes=config.warm_zygotes,
        idle_seconds=config.warm_idle_seconds,
        memory_mb=config.warm_memory_mb,
        forks=config.warm_forks,
    )

    try:
        state.lock()
        sandboxes, isolation = chosen(config, state.path)

        def start(slots: int) -> GuardSet:
            return start_guards(
                incarnation=IdSource().uuid(),
                state_dir=state.path,
                slots=slots,
                job_files=files,
                warm=warm,
                sandboxes=sandboxes,
            )

        settled = end_previous(state.path)
        guards, most_slots = start_slots(own=config.slots, state_dir=state.path, start=start)
    except TobanError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code

    from toban_executor.main import main as run
    from toban_executor.ports.guards import Prepared

    prepared = Prepared(
        state_dir=state.path, guards=guards, settled=settled, most_slots=most_slots, isolation=isolation
    )
    code, again = run(config, prepared)
    if code == 0 and again:
        # So that the next one knows it too.
        set_open_files(files)
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)
    return code


def _entry(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("watch", "witness"):
        try:
            keep_untraced()
        except OSError as error:
            sys.stderr.write(
                f"toban_executor does not start: {error.strerror}, and could read its keys; end that one first\n"
            )
            return os.EX_OSERR
    if not arguments:
        return main()
    if list(arguments) == ["drain"]:
        from toban_executor.adapters.drain_command import main as drain

        return drain()
    if list(arguments) == ["watch"]:
        from toban_executor.guard.watcher import watch

        return watch([sys.executable, "-m", "toban_executor"])
    if arguments[0] == "witness":
        os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
        from toban_executor.main.witness import main as witness

        return witness(arguments[1:])
    if arguments[0] in ("-h", "--help"):
        sys.stdout.write(HELP)
        return 0
    sys.stderr.write(f"toban_executor takes no arguments, or `drain` or `watch`; not {' '.join(arguments)!r}\n")
    return os.EX_USAGE


if __name__ == "__main__":
    sys.exit(_entry(sys.argv[1:]))
