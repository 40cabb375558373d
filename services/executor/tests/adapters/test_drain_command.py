"""`python -m toban_executor drain`: jobs end before the executor is told to stop, and how much of their grace they have when they must."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toban_executor.adapters import drain_command
from toban_executor.guard.clock import boottime
from toban_proto.v1 import common_pb2
from toban_testing.admin_port import token_file


def drain(world: Any, **environment: str) -> "subprocess.Popen[bytes]":
    return executor("drain", world.executor.env | environment)


def executor(word: str, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "toban_executor", word]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


async def said(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """Its exit code and what it has written."""
    output, _ = await asyncio.to_thread(process.communicate, timeout=60)
    return process.returncode, output.decode()


async def test_jobs_end_before_the_executor_is_told_to_stop(world: Any, tmp_path: Path, at_most: Any) -> None:
    gate = tmp_path / "gate"
    await world.start(world.order(1, "sh", "-c", f"until [ -e {gate} ]; do sleep 0.01; done; echo whole"))
    hook = drain(world)
    await world.until(lambda: world.coordinator.beats[-1].draining)
    [answer] = await world.start(world.order(2, "true"))
    assert not answer.accepted
    assert hook.stdout is not None
    assert await asyncio.to_thread(hook.stdout.readline) == b"draining, 1/4 slots busy\n"
    gate.touch()
    assert await said(hook) == (0, "draining, 0/4 slots busy\ndrained: nothing runs here any more\n")
    assert (await world.outcome(1)).last_line == "whole"
    # It lives on, drained, and tells so, until the signal comes; and a second drain has nothing to wait for.
    assert world.coordinator.beats[-1].draining
    assert await said(drain(world)) == (0, "draining, 0/4 slots busy\ndrained: nothing runs here any more\n")
    assert world.executor.process.poll() is None
    began = boottime()
    world.executor.process.terminate()
    assert await asyncio.to_thread(world.executor.process.wait, 60) == 0
    assert boottime() - began < at_most(3)
    assert world.coordinator.beats[-1].stopped


async def test_a_drain_that_takes_too_long_is_a_stop(world_maker: Any) -> None:
    """The time that jobs have counts from the first word, not again from SIGTERM."""
    world = world_maker()
    await world.open(SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS="0.5")
    try:
        await world.start(world.order(1, "sleep", "60"))
        assert (await said(drain(world)))[0] == 0
        assert (await world.outcome(1)).reason == "forced_shutdown"
        assert len(world.coordinator.registered) == 1
    finally:
        await world.close()


@pytest.mark.parametrize(("longest", "tidied"), [("60", True), pytest.param("0.3", False, marks=pytest.mark.long)])
async def test_a_job_has_its_own_grace_when_its_executor_stops(
    world_maker: Any, tmp_path: Path, longest: str, tidied: bool
) -> None:
    """A job that tidies up for longer than `SCHEDULER_SHUTDOWN_GRACE_SECONDS` is killed in the middle."""
    world, ready = world_maker(), tmp_path / "ready"
    await world.open(SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS="0", SCHEDULER_SHUTDOWN_GRACE_SECONDS=longest)
    try:
        tidy = f"trap 'sleep 1; echo TIDY >&2; exit 3' TERM; touch {ready}; while :; do sleep 0.02; done"
        await world.start(world.order(1, "sh", "-c", tidy, grace_seconds=30.0))
        await world.until(ready.exists)
        world.executor.process.terminate()
        outcome = await world.outcome(1)
        assert (outcome.kind, outcome.reason) == (common_pb2.OUTCOME_KIND_FAILED, "forced_shutdown")
        assert (outcome.last_line == "TIDY") is tidied
        assert await asyncio.to_thread(world.executor.process.wait, 10) == 0
    finally:
        await world.close()


async def test_no_other_process_is_asked_to_drain(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a process that has the pid of an executor that crashed: this test would not outlive the signal."""
    code, text = await said(drain(world, SCHEDULER_STATE_DIR=str(tmp_path / "other")))
    assert code != 0
    assert f"no executor serves with the state directory {tmp_path / 'other'}; SCHEDULER_STATE_DIR names it" in text
    world.executor.process.kill()
    world.executor.process.wait()
    file = world.tmp / "state" / "serving.json"
    serving = json.loads(file.read_text())
    file.write_text(json.dumps(serving | {"pid": os.getpid()}))
    code, text = await said(drain(world))
    assert (code != 0, "no executor serves" in text, text.count("\n")) == (True, True, 1)
    for name, value in world.executor.env.items():
        monkeypatch.setenv(name, value)
    for content in ("", "{}", "[]"):
        file.write_text(content)
        lines: list[str] = []
        assert drain_command.main(lines.append) != 0
        assert "no executor serves" in lines[0] and len(lines) == 1


async def test_a_drain_needs_the_token_by_which_it_sees_how_far_the_executor_is(world: Any, tmp_path: Path) -> None:
    """Without it the executor is not even asked; with a wrong one it drains, and the command says why it cannot wait."""
    code, text = await said(drain(world, SCHEDULER_ADMIN_TOKEN_FILE=""))
    assert (code, text.count("\n")) == (78, 1) and text.startswith("SCHEDULER_ADMIN_TOKEN_FILE: not set")
    assert not world.coordinator.beats[-1].draining
    (tmp_path / "other").mkdir()
    other = token_file(tmp_path / "other")
    await asyncio.to_thread(other.write_text, "another")
    code, text = await said(drain(world, SCHEDULER_ADMIN_TOKEN_FILE=str(other)))
    assert (code, text.count("\n")) == (77, 1)
    assert "it drains, but its /healthz cannot be read: send Authorization: Bearer" in text
    await world.until(lambda: world.coordinator.beats[-1].draining)


async def test_what_a_killed_executor_said_of_itself_is_gone_before_the_next_one_serves(world: Any) -> None:
    """Until it serves, the signal would end it."""
    world.executor.process.kill()
    world.executor.process.wait()
    file = world.tmp / "state" / "serving.json"
    assert file.exists()
    world.coordinator.silent = True
    world.executor.start()
    await world.until(lambda: "register failed" in world.executor.log() or not file.exists())
    assert not file.exists()
    world.coordinator.silent = False
    await world.granted(incarnations=2)
    await world.until(file.exists)


async def test_other_words_are_refused() -> None:
    assert await said(executor("drian", os.environ)) == (
        64,
        "toban_executor takes no arguments, or `drain` or `watch`; not 'drian'\n",
    )
    code, text = await said(executor("--help", os.environ))
    assert code == 0 and text.startswith("usage: python -m toban_executor [drain | watch]\n")
