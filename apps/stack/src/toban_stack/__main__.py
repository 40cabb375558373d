"""The command line of a stack on one machine. Usage: python -m toban_stack up|down|status|certs STEP

COORDINATORS, EXECUTORS, LOG_ARCHIVERS, ADMIN_WEBS and SIGNERS are the numbers of processes that `up` starts, and EXECUTOR_GROUPS names
groups, with commas between, that get one more executor each; TOBAN_HOME is the stack's folder, by default .toban in the clone, else in
the working folder.
Exit codes: 0 for success, 1 for a failure or an unhealthy process, 2 for a wrong call.
"""

import fcntl
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from toban_domain.errors import TobanError
from toban_domain.executor_group import check_name
from toban_runtime.clock import SystemClock
from toban_stack import certificate_rotation, people
from toban_stack.console import columns, print_lines
from toban_stack.errors import StackError
from toban_stack.health import ProcessStatus, last_exits
from toban_stack.stack import Stack
from toban_stack.supervisor.policy import Backoff
from toban_stack.toban_command import clone_of, spelled, typed

USAGE = 2
STATUS_HEADER = ("PROCESS", "ROLE", "ADDRESS", "ADMIN", "PID", "RESTARTS", "HEALTH")


def main(arguments: list[str]) -> int:
    """Runs one command; returns its exit code."""
    commands: dict[str, Callable[[], int]] = {"up": up, "down": down, "status": status}
    if arguments[:1] == ["certs"] and (step := certificate_rotation.step(arguments[1:])) is not None:
        commands[" ".join(arguments)] = partial(certificates, step)
    command = " ".join(arguments)
    if command not in commands:
        usage = [*commands, *(f"certs {one}" for one in certificate_rotation.USAGE)]
        sys.stderr.write(f"usage: python -m toban_stack {'|'.join(usage)}\n")
        return USAGE
    try:
        return commands[command]()
    except (StackError, TobanError, ValueError, PermissionError) as error:
        sys.stderr.write(f"\n{spelled(f'make {command}')} failed: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return 130


def up() -> int:
    """Starts the stack, applies the examples and shows the first run."""
    from toban_stack import quickstart_output

    quickstart_output.run(_stack(), clone=clone_of())
    return 0


def down() -> int:
    """Stops every process of the stack and prints a line for each."""
    stack = _stack()
    lines = stack.down()
    people.leave_context(home())
    print_lines(*(f"• {line}" for line in lines))
    print_lines("Toban is stopped; its data stays in " + str(home()) if lines else "nothing was running")
    return 0


def status() -> int:
    """Prints a line for each process, and the address of the site; 0 only when all are green."""
    stack = _stack()
    rows = stack.status()
    if not rows:
        print_lines(f"no stack is running here: {typed('make up')}")
        return 1
    print_lines(*columns([STATUS_HEADER, *map(_cells, rows)]))
    if exits := last_exits(rows, SystemClock().wall()):
        print_lines("", *columns(exits))
    print_lines(*(f"\nSite  http://{address}" for address in stack.sites))
    return 0 if all(row.green for row in rows) else 1


def _cells(row: ProcessStatus) -> tuple[str, ...]:
    restarts = "-" if row.restarts is None else str(row.restarts)
    return (row.name, row.role, row.address or "-", row.admin or "-", str(row.pid or "-"), restarts, row.health)


def certificates(step: Callable[[Path], str]) -> int:
    """Replaces certificate files, which running services reload without a restart."""
    # The supervisor renews what is due while it holds the lock: not between the parts of a step.
    home().mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home() / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print_lines(step(home() / "tls"))
    return 0


def home() -> Path:
    """TOBAN_HOME, or .toban in the clone; where the package is installed, in the working folder."""
    return Path(os.environ.get("TOBAN_HOME") or (clone_of() or Path.cwd()) / ".toban")


def _stack() -> Stack:
    return Stack(
        home=home(),
        coordinators=_count("COORDINATORS", 2),
        executors=_count("EXECUTORS", 2),
        log_archivers=_count("LOG_ARCHIVERS", 1),
        admin_webs=_count("ADMIN_WEBS", 1, least=0),
        signers=_count("SIGNERS", 0, least=0),
        groups=_groups(),
        supervise=Backoff(),
        on_progress=lambda line: print_lines(f"• {line}"),
    )


def _groups() -> tuple[str, ...]:
    named = dict.fromkeys(name.strip() for name in os.environ.get("EXECUTOR_GROUPS", "").split(",") if name.strip())
    return tuple(check_name(name) for name in named)


def _count(variable: str, default: int, *, least: int = 1) -> int:
    raw = os.environ.get(variable) or str(default)
    if not raw.isdigit() or not least <= int(raw) <= 64:
        raise StackError(f"{variable}={raw!r} is not a number of processes: give one from {least} to 64")
    return int(raw)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
