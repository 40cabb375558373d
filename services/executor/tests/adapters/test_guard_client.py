"""The executor's end of the connection to its guards."""

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from toban_executor.adapters.guard_client import GuardClient
from toban_runtime.clock import SystemClock


def process(program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([program])


@pytest.mark.parametrize(("program", "proven"), [("/bin/true", True), ("/bin/false", False)])
async def test_only_guards_that_ended_in_order_prove_that_nothing_is_left(program: str, proven: bool) -> None:
    guards: Any = SimpleNamespace(slots=[], close=lambda: None, supervisor=process(program))
    assert await GuardClient(guards=guards, clock=SystemClock()).close(timeout=5.0) is proven
