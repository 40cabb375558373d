"""The program of a step `type: container`: creates and starts it, passes its output and SIGTERM on, and ends with its exit code.

Usage: python -I -m toban_executor.adapters.container_step_runner, with the step as JSON on standard input.

The guard does not depend on this program: it freezes and kills the container by its cgroup, which the guard has made, and no step has ended
before that cgroup is empty. Exit code 1 with a line on stderr when the container cannot be started; else that of the container.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toban_executor.adapters.engine_client import Engine, EngineError, exit_code, frames
from toban_executor.adapters.step_program import CANCELED, fail, own_variables, say, write_all
from toban_executor.decide.container_call import MountError, creation, mount_sources
from toban_executor.guard.cgroup import mount_root, remove_tree
from toban_executor.guard.clock import boottime, pause

_OUTPUTS = {1: 1, 2: 2}
_LOOK_SECONDS = 10.0


class CanceledError(Exception):
    """SIGTERM came before the container was to be started."""


def main(given: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Exit code of the step."""
    group, root = Path(environ["TOBAN_CGROUP"]), mount_root()
    if root is None:
        return fail("there is no mount of cgroup version 2")
    engine = Engine(given["socket"])
    try:
        sources = {path: os.path.realpath(path) for path in mount_sources(given["container"])}
        body = creation(
            given,
            sources=sources,
            own=own_variables(environ),
            cgroup_parent=f"/{group.relative_to(root)}",
        )
        signal.signal(signal.SIGTERM, _cancel)
        return _run(engine, given["name"], body, group)
    except CanceledError:
        return fail("the run was cancelled before its container was started", CANCELED)
    except (EngineError, MountError) as error:
        return fail(str(error))


def _run(engine: Engine, name: str, body: Mapping[str, Any], group: Path) -> int:
    signals: list[int] = []
    try:
        container = engine.create(name, body)
        # Before its start, so that nothing of its output and of its end is missed.
        output, ended = engine.attach(container), engine.wait(container)
        # One that comes while the engine starts the container waits until it has.
        signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
        engine.start(container)
        signal.signal(signal.SIGTERM, lambda _number, _frame: _pass_on(engine, container))
        if signals:
            _pass_on(engine, container)
        if not _is_guarded(engine, container, group):
            raise EngineError(
                f"the engine did not put the container into {group}; it must share the executor's cgroup hierarchy and use cgroupfs"
            )
    except (EngineError, CanceledError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # By its name: the engine may have made it without a response.
        engine.remove(name)
        raise
    for number, data in frames(output):
        write_all(_OUTPUTS.get(number, 1), data)
    code = exit_code(ended) & 0xFF
    # The container is removed, so nothing comes into its group any more.
    remove_tree(group)
    return code


def _cancel(_number: int, _frame: object) -> None:
    raise CanceledError


def _is_guarded(engine: Engine, container: str, group: Path) -> bool:
    """Whether the container is in the guard's group, or has ended. Its end shows in the group before the engine knows of it."""
    end = boottime() + _LOOK_SECONDS
    while "populated 1" not in (group / "cgroup.events").read_text():
        pid = engine.pid(container)
        if not pid:
            return True
        with contextlib.suppress(OSError):
            groups = Path(f"/proc/{pid}/cgroup").read_text()
            if f"/{group.parent.name}/{group.name}/" not in groups:
                return False
        if boottime() > end:
            return False
        pause(0.05)
    return True


def _pass_on(engine: Engine, container: str) -> None:
    try:
        engine.signal(container, "SIGTERM")
    except EngineError as error:
        # It may have ended; else the guard kills it after the grace.
        say(f"SIGTERM not passed on: {error}")


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin), os.environ))
