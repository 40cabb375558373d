"""A step of `type: python` as a command: the executor's own interpreter, isolated, with the small program that calls the function."""

import sys
from collections.abc import Sequence

from toban_executor.adapters import python_program

_FLAGS = ("-I", "-S")
"""No PYTHON* variables, no site-packages: the job sees the standard library and its python_path, and starts in less time."""


def command(callable_name: str, folders: Sequence[str], *, allow_shell: bool) -> tuple[str, ...]:
    """The argv that calls `callable_name` ("package.module:function") with the payload: without `allow_shell` only one that is the module's own."""
    whose = python_program.ANY if allow_shell else python_program.OWN
    return (sys.executable, *_FLAGS, python_program.__file__, whose, callable_name, *folders)
