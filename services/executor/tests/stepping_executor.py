"""An executor as it is, which kills itself (SIGKILL) once, at the step that the file KILL_AT names, between the end of an attempt and the
answer to its report.

Steps: told (the guard has said the end), writing (its lines go to the journal), written (they are there), reporting, answered.

Usage, with this folder on PYTHONPATH: echo told > step; KILL_AT=step python -m stepping_executor
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sized
from pathlib import Path
from typing import Any

from toban_executor import __main__ as executor

REPORTS_WOULD_BE_OUT = 0.3
"""Seconds: a report that waits for nothing is at the coordinator by then."""

start_slots = executor.start_slots


def due(step: str) -> bool:
    """Whether the test wants a kill here."""
    file = Path(os.environ["KILL_AT"])
    return file.exists() and file.read_text().strip() == step


def pass_by(step: str, attempts: Sized) -> None:
    """Dies here when the test says so, and when it is about the end of an attempt."""
    if attempts and due(step):
        Path(os.environ["KILL_AT"]).unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def add_steps() -> None:
    """Wrap the real methods."""
    from toban_executor.adapters.coordinator_client import CoordinatorClient
    from toban_executor.adapters.journal import Journal
    from toban_executor.app.attempt_manager import AttemptManager

    ended, store, report = AttemptManager.ended, Journal.store, CoordinatorClient.report

    def told(self: AttemptManager, end: Any) -> None:
        pass_by("told", [end])
        ended(self, end)

    async def writing(self: Journal, batch: Any) -> Any:
        if batch.seals and due("writing"):
            await asyncio.sleep(REPORTS_WOULD_BE_OUT)
            pass_by("writing", batch.seals)
        done = await store(self, batch)
        pass_by("written", batch.seals)
        return done

    async def reporting(self: CoordinatorClient, reports: Any) -> Any:
        outcomes = [one for one in reports if one.outcome is not None]
        pass_by("reporting", outcomes)
        answer = await report(self, reports)
        pass_by("answered", outcomes)
        return answer

    AttemptManager.ended, Journal.store, CoordinatorClient.report = told, writing, reporting  # type: ignore[method-assign, assignment]


def start_then_add_steps(**given: Any) -> Any:
    """Guards first: what gets steps loads gRPC, which must not be there when they start."""
    started = start_slots(**given)
    add_steps()
    return started


if __name__ == "__main__":
    executor.start_slots = start_then_add_steps
    sys.exit(executor.main())
