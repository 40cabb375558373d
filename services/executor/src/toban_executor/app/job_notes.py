"""What live jobs say on their sockets: progress and steps for the next heartbeat, checkpoints at once.

A checkpoint is answered when PostgreSQL has committed it, so nothing of it is kept here: a job that was not answered sends it again.
"""

import asyncio
import json
from collections.abc import Callable

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.progress import Progress
from toban_executor.decide.guard_types import JobNote
from toban_executor.decide.progress import ProgressBook
from toban_executor.decide.usage import UsageBook
from toban_executor.ports.coordinator import Gateway
from toban_executor.ports.guards import Guards
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

RETRY_SECONDS = 1.0

_log = get_logger(__name__)
_checkpoints = metrics.counter(
    "toban_executor_checkpoints_total",
    "Checkpoints of jobs by result: stored, refused (the attempt is not the run's any more), or failed (tried again).",
    ("result",),
)


class JobNotes:
    """`wake_heartbeat` sends a heartbeat at once."""

    def __init__(self, *, guards: Guards, gateway: Gateway, wake_heartbeat: Callable[[], None], clock: Clock) -> None:
        self.progress = ProgressBook()
        self.usage = UsageBook()
        self._guards = guards
        self._gateway = gateway
        self._wake_heartbeat = wake_heartbeat
        self._clock = clock
        # One at a time for each attempt: its guard sends the next one after the answer.
        self._storing: dict[AttemptKey, asyncio.Task[None]] = {}

    def take(self, note: JobNote) -> None:
        """A note of a live attempt."""
        match note.kind:
            case "progress":
                self.progress.put(note.key, Progress.from_json(json.loads(note.text)))
            case "checkpoint":
                self._storing[note.key] = asyncio.create_task(self._store(note))
            case "steps":
                self.progress.put_steps(note.key, note.text)
                self._wake_heartbeat()

    def closed(self, key: AttemptKey) -> Progress | None:
        """The attempt has ended: its last progress. A checkpoint that is on its way has no one left to answer."""
        if (task := self._storing.pop(key, None)) is not None:
            task.cancel()
        self.usage.closed(key)
        return self.progress.closed(key)

    async def sample_usage(self) -> None:
        """Note what the processes of the attempts use."""
        measured = await self._guards.measure()
        at = self._clock.wall()
        for key, one in measured.items():
            self.usage.add(key, one, at)

    async def _store(self, note: JobNote) -> None:
        """Until a coordinator has answered, or the attempt has ended."""
        while True:
            try:
                stored = await self._gateway.store_checkpoint(note.key, note.number, note.text)
                break
            except TobanError as error:
                _checkpoints.labels("failed").inc()
                if error.code in (ErrorCode.INVALID_ARGUMENT, ErrorCode.UNIMPLEMENTED):
                    self._guards.checkpoint_stored(note.key, note.number, error.message)
                    return
                _log.warning(
                    "checkpoint not stored; will retry",
                    run_id=note.key.run_id,
                    error=error.message,
                    retry_seconds=RETRY_SECONDS,
                )
            await self._clock.sleep(RETRY_SECONDS)
        _checkpoints.labels("stored" if stored else "refused").inc()
        problem = "" if stored else "the run has gone on: this attempt is not its last one any more"
        self._guards.checkpoint_stored(note.key, note.number, problem)
