"""Warm steps: which zygote a step forks from, and how long a slot keeps it (docs/jobs.md, warm steps)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toban_domain.secret import SECRETS_FOLDER, SecretFile
from toban_executor.decide.models import StartOrder, StepOrder

_OF_ONE_RUN = ("TRACEPARENT", "TRACESTATE")
_KEPT = ("TOBAN_INCARNATION", SECRETS_FOLDER)


class WarmLimits(NamedTuple):
    """When a zygote is ended. `zygotes`: as many one slot keeps, 0 = warm steps run cold. The others: 0 = no limit, but for `memory_mb`."""

    zygotes: int = 2
    idle_seconds: float = 600.0
    memory_mb: int = 512
    forks: int = 1000

    def reason_to_end(self, *, idle: float, memory_mb: float, forks: int) -> str:
        """Why a zygote that runs no step must end: idle, memory or forks; empty = it stays."""
        if memory_mb > self.memory_mb:
            return "memory"
        if self.forks and forks >= self.forks:
            return "forks"
        return "idle" if self.idle_seconds and idle >= self.idle_seconds else ""

    def encode(self) -> str:
        """For a command line."""
        return ",".join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> WarmLimits:
        """The inverse of encode."""
        zygotes, idle, memory, forks = text.split(",")
        return cls(int(zygotes), float(idle), int(memory), int(forks))


class WarmNote(NamedTuple):
    """What has changed in the zygotes of a slot: the keys of those it has, forks since the last note, and why others ended."""

    keys: tuple[str, ...] = ()
    forks: int = 0
    ended: Mapping[str, int] = {}


def zygote_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job that modules may read when they are imported: those that do not belong to one run.

    TOBAN_INCARNATION stays, by which the processes of an incarnation are found, and so does the folder of secrets.
    """
    return {
        name: value
        for name, value in env.items()
        if name in _KEPT or not (name.startswith("TOBAN_") or name in _OF_ONE_RUN)
    }


def zygote_key(step: StepOrder, *, env: Mapping[str, str], working_dir: str, secrets: Sequence[SecretFile] = ()) -> str:
    """Names the zygotes that the step may fork from: same command, variables, working folder and secrets. The user is the executor's.

    Of secrets their values count, which modules may have read when they were imported; the paths, which differ from slot to slot, do not.
    """
    paths = {SECRETS_FOLDER, *(secret.file_env for secret in secrets)}
    variables = sorted((name, value) for name, value in zygote_env(env).items() if name not in paths)
    values = sorted((one.file, one.file_env, hashlib.sha256(one.value).hexdigest()) for one in secrets)
    text = json.dumps([step.warm_argv, variables, working_dir, values])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def wanted_keys(order: StartOrder, env: Mapping[str, str]) -> list[str]:
    """The zygotes that an attempt would use, in the order of its steps."""
    steps = order.steps[order.first_step :]
    return [
        zygote_key(step, env=env, working_dir=order.working_dir, secrets=order.secrets)
        for step in steps
        if step.warm_argv
    ]


def choose_slot(free: list[int], keys: Mapping[int, tuple[str, ...]], wanted: list[str]) -> int:
    """The slot of `free` for an attempt: one that has its first zygote, else one with as few zygotes as possible, else the last."""
    if not keys:
        return free[-1]
    if wanted:
        for slot in reversed(free):
            if wanted[0] in keys.get(slot, ()):
                return slot
    return min(reversed(free), key=lambda slot: len(keys.get(slot, ())))
