"""The steps `type: container` of an order, made ready for their program, and the engine of this executor."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import STEPS_LABEL
from toban_executor.adapters import container_step_runner
from toban_executor.adapters.engine_client import LABEL, Engine, EngineError
from toban_executor.decide.container_call import VARIABLE, MountRule, parse_mounts
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.guard import cgroup

LEFT_SECONDS = 2.0
"""Between two looks for containers that programs of steps have left."""
ENGINE_VARIABLE = "SCHEDULER_CONTAINER_ENGINE"
_PROGRAM = (sys.executable, "-I", "-m", container_step_runner.__name__)


class ContainerSteps:
    """`socket` is that of the engine, None = this executor has none; `mounts` is SCHEDULER_CONTAINER_MOUNTS.
    `earlier` are the incarnations of this executor that have ended.

    Raises TobanError CONFIG_INVALID for what cannot be used, UNAVAILABLE while the engine does not respond.
    """

    def __init__(
        self, *, socket: Path | None, mounts: str, state_dir: Path, incarnation: str, earlier: Collection[str]
    ) -> None:
        self._socket = str(socket.absolute()) if socket else ""
        self._mounts = mounts
        self._incarnation = incarnation
        try:
            rules = parse_mounts(mounts)
        except ValueError as error:
            raise TobanError(ErrorCode.CONFIG_INVALID, f"{VARIABLE}: {error}") from None
        if self._socket:
            _keep_apart(rules, Path(self._socket), state_dir)
            if reason := cgroup.why_unusable():
                remedy = (
                    "run the executor as root, or let its service manager delegate a cgroup (systemd: Delegate=yes)"
                )
                text = f"{ENGINE_VARIABLE}: container steps need a writable cgroup of version 2; {reason}; {remedy}"
                raise TobanError(ErrorCode.CONFIG_INVALID, text)
            self._check(earlier)

    @property
    def labels(self) -> dict[str, str]:
        """What selectors know of this executor."""
        return {STEPS_LABEL: "container"} if self._socket else {}

    def complete(self, order: StartOrder) -> StartOrder:
        """The order with programs for its container steps."""
        if not self._socket or not any(step.type == "container" for step in order.steps):
            return order
        return replace(order, steps=tuple(self._step(order, step) for step in order.steps))

    async def remove_left(self, live: Callable[[], Collection[int]]) -> None:
        """Remove what programs of steps that were killed have left: containers that may never have been started, then their cgroups.

        `live` are the tokens of attempts that have not ended. Raises EngineError.
        """
        base = cgroup.find_base(f"toban-{self._incarnation}", make=False)
        found = cgroup.step_groups(base) if base else []
        # Asked for after the list: an attempt that has ended has no program that could ask the engine for anything.
        held = set(live())
        for token, group in found:
            if token not in held:
                # An engine that starts a container into a frozen group can remove it only then.
                cgroup.kill_group(group)
                await asyncio.to_thread(Engine(self._socket).remove, f"toban-{self._incarnation}-{group.name}")
                cgroup.remove_tree(group)

    def _step(self, order: StartOrder, step: StepOrder) -> StepOrder:
        if step.type != "container":
            return step
        try:
            container = json.loads(step.stdin)
        except ValueError:
            # Refused as a step without a program.
            return step._replace(argv=(), stdin="")
        given: dict[str, Any] = {
            "container": container,
            "name": f"toban-{self._incarnation}-{order.key.token}-{step.id}",
            "labels": {LABEL: self._incarnation, "dev.toban.run": str(order.key.run_id), "dev.toban.step": step.id},
            "env": dict(order.env),
            "mounts": self._mounts,
            "socket": self._socket,
        }
        return step._replace(argv=_PROGRAM, stdin=json.dumps(given))

    def _check(self, earlier: Collection[str]) -> None:
        """The engine responds, puts containers into groups that it is told, and has none of an incarnation that is over."""
        engine = Engine(self._socket)
        try:
            driver = engine.info().get("CgroupDriver")
            # Those that run have ended with the cgroups of their guards; these were never started, or were not removed.
            for container, incarnation in engine.of_label(LABEL):
                if incarnation in earlier:
                    engine.remove(container)
            for incarnation in earlier:
                if group := cgroup.find_base(f"toban-{incarnation}", make=False):
                    cgroup.remove(group)
        except EngineError as error:
            raise TobanError(ErrorCode.UNAVAILABLE, f"{ENGINE_VARIABLE}: {error}") from None
        if driver != "cgroupfs":
            raise TobanError(
                ErrorCode.CONFIG_INVALID,
                f"{ENGINE_VARIABLE}: the engine uses the cgroup driver {driver!r}; set it to cgroupfs",
            )


def _keep_apart(rules: Collection[MountRule], *own: Path) -> None:
    """No container may see the engine's socket, which gives the rights of root, or the executor's state. Raises TobanError."""
    for rule in rules:
        for path in own:
            if path.resolve().is_relative_to(Path(rule.folder).resolve()):
                raise TobanError(
                    ErrorCode.CONFIG_INVALID,
                    f"{VARIABLE}: {str(rule.folder)!r} contains {str(path)!r}; list other folders",
                )
