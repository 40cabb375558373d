"""The program of a container step that is cancelled before its container runs."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_executor.adapters import container_step_runner as runner


class FakeEngine:
    """Is sent SIGTERM with one of its calls."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: str) -> str:
            self.calls.append(" ".join([name, *arguments[:1]]))
            if name == self.at:
                os.kill(os.getpid(), signal.SIGTERM)
            return "id"

        return call


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, runner._cancel)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("at", ["create", "attach", "wait"])
def test_a_container_that_was_not_started_is_removed(at: str, tmp_path: Path) -> None:
    engine: Any = FakeEngine(at)
    with pytest.raises(runner.CanceledError):
        runner._run(engine, "name", {}, tmp_path)
    assert engine.calls[-1] == "remove name" and "start id" not in engine.calls


def test_sigterm_at_the_start_reaches_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_is_guarded", lambda *_: True)
    monkeypatch.setattr(runner, "frames", lambda _: [])
    monkeypatch.setattr(runner, "exit_code", lambda _: 3)
    engine: Any = FakeEngine("start")
    assert runner._run(engine, "name", {}, tmp_path / "group") == 3
    assert engine.calls[-1] == "signal id"
