"""`toban dev`: a stack of one's own on this machine."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from toban_domain.errors import ErrorCode, TobanError

# A program of its own, above this one: neither imported nor part of what this one is made of.
_PROGRAM = "-mtoban_stack"


class Step(StrEnum):
    """What to do with the stack."""

    UP = "up"
    DOWN = "down"
    STATUS = "status"


What = Annotated[Step, typer.Argument(metavar="[up|down|status]", help="What to do.", show_default="up")]


def dev(step: What = Step.UP) -> int:
    """Start a whole Toban on this machine, stop it, or show its processes. For trying and developing, not for production.

    Everything is in the folder .toban of the working folder, or in TOBAN_HOME: servers from packages, where the system has none,
    certificates, secrets, data and logs. `down` keeps the data. Commands then go there by context dev. Linux only.
    A context dev that a person has made, or a running stack of another folder, stays as it is.

    Examples:
    toban dev
    toban dev status
    toban dev down
    """
    import subprocess
    from importlib.util import find_spec

    if sys.platform != "linux":
        message = "the stack runs on Linux alone; elsewhere use a Linux container or virtual machine"
        raise TobanError(ErrorCode.UNIMPLEMENTED, message)
    if find_spec(_PROGRAM.removeprefix("-m")) is None:
        raise TobanError(ErrorCode.UNIMPLEMENTED, "the stack is not installed; pip install 'toban[dev]'")
    return subprocess.run([sys.executable, _PROGRAM, step.value], env=os.environ, check=False).returncode
