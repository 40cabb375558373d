"""External workers as decorated functions, over REST: `Worker`, `Step`, `LogHandler`, `StepFailedError` and `StepStoppedError`
(docs/external-workers.md)."""

from __future__ import annotations

from toban.worker.output import LogHandler
from toban.worker.service import Worker
from toban.worker.step import Step, StepFailedError, StepStoppedError

__all__ = ["LogHandler", "Step", "StepFailedError", "StepStoppedError", "Worker"]
