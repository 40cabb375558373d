"""The newcomer's stack at the prompt. Usage: python -m toban_stack up|down|status|certs STEP

COORDINATORS, EXECUTORS, LOG_ARCHIVERS and ADMIN_WEBS say how many processes `up` starts; TOBAN_HOME is the stack's folder
(.toban in the clone by default). Exit codes: 0 when all is well, 1 when something is not, 2 for a wrong call.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from toban_stack import rollover
from toban_stack.errors import StackError
from toban_stack.report import columns, say
from toban_stack.stack import Stack

USAGE = 2


def main(arguments: list[str]) -> int:
    """Runs one of the three words."""
    words: dict[str, Callable[[], int]] = {"up": up, "down": down, "status": status}
    words |= {f"certs {step}": partial(certificates, step) for step in rollover.STEPS}
    wanted = " ".join(arguments)
    if wanted not in words:
        sys.stderr.write(f"usage: python -m toban_stack {'|'.join(words)}\n")
        return USAGE
    try:
        return words[wanted]()
    except (StackError, PermissionError) as error:
        sys.stderr.write(f"\nmake {wanted} failed: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return 130


def up() -> int:
    """Starts the stack, runs the examples and shows the first run."""
    from toban_stack import welcome

    welcome.run(_stack(), root=project_root())
    return 0


def down() -> int:
    """Ends everything and says what it ended."""
    lines = _stack().down()
    say(*(f"• {line}" for line in lines))
    say("Toban is stopped; its data stays in " + str(home()) if lines else "nothing was running")
    return 0


def status() -> int:
    """Prints a line a process, and where the site is; 0 only when all are green."""
    stack = _stack()
    rows = stack.status()
    if not rows:
        say("no stack runs here: make up")
        return 1
    table = [("PROCESS", "ROLE", "ADDRESS", "ADMIN", "PID", "HEALTH")]
    table += [(row.name, row.role, row.address, row.admin or "-", str(row.pid), row.health) for row in rows]
    say(*columns(table), *(f"\nSite  http://{address}" for address in stack.sites))
    return 0 if all(row.green for row in rows) else 1


def certificates(step: str) -> int:
    """Gives the services new certificate files, which they take without a restart."""
    say(rollover.STEPS[step](home() / "tls"))
    return 0


def project_root() -> Path:
    """The clone that this package lies in, or the working folder for an installed one."""
    clone = Path(__file__).resolve().parents[4]
    return clone if (clone / "Makefile").exists() else Path.cwd()


def home() -> Path:
    """TOBAN_HOME, or .toban in the clone."""
    return Path(os.environ.get("TOBAN_HOME") or project_root() / ".toban")


def _stack() -> Stack:
    return Stack(
        home=home(),
        coordinators=_count("COORDINATORS", 2),
        executors=_count("EXECUTORS", 2),
        log_archivers=_count("LOG_ARCHIVERS", 1),
        admin_webs=_count("ADMIN_WEBS", 1, least=0),
        say=lambda line: say(f"• {line}"),
    )


def _count(variable: str, default: int, *, least: int = 1) -> int:
    raw = os.environ.get(variable) or str(default)
    if not raw.isdigit() or not least <= int(raw) <= 64:
        raise StackError(f"{variable}={raw!r} is not a number of processes: give one from {least} to 64")
    return int(raw)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
