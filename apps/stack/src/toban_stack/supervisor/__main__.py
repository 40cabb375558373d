"""The process. Usage: python -m toban_stack.supervisor HOME FIRST_SECONDS LONGEST_SECONDS RESET_SECONDS"""

import sys
from pathlib import Path

from toban_runtime.clock import SystemClock
from toban_stack.stack_paths import StackPaths
from toban_stack.supervisor.loop import Supervisor
from toban_stack.supervisor.policy import Backoff


def main(arguments: list[str]) -> None:
    """Supervises until SIGTERM; log lines go to the standard error output."""
    home, first, longest, reset = arguments
    clock = SystemClock()

    def log(line: str) -> None:
        sys.stderr.write(f"{clock.wall().isoformat(timespec='milliseconds')} {line}\n")
        sys.stderr.flush()

    backoff = Backoff(first_seconds=float(first), longest_seconds=float(longest), reset_seconds=float(reset))
    Supervisor(home=StackPaths(Path(home)), backoff=backoff, log=log).run()


if __name__ == "__main__":
    main(sys.argv[1:])
