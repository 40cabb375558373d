"""The state of each step of a run and of each attempt, from the definition and from the steps that were started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_domain.outcome import StepResult
from toban_domain.run import TERMINAL, RunState

# States of attempts in which a step has no end.
_UNFINISHED = {"DISPATCHED": "running", "RUNNING": "running", "REVOKED": "lost", "LOST": "lost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """A step: pending, running, succeeded, failed, skipped (an earlier attempt has done it, or an earlier step has failed), cancelled or lost.

    `number` is its place in the definition, from 1.
    """

    number: int
    id: str
    name: str
    state: str
    started: StepResult | None = None


def failed_step(run: RunState, ended_at: int, steps: int) -> int | None:
    """The index of the step with which a rerun of a run that ended at step `ended_at` begins; None = only the whole run is repeated."""
    failed = run in TERMINAL and run is not RunState.SUCCEEDED
    return ended_at if failed and 0 < ended_at < steps else None


def step_states(
    definition: Sequence[Mapping[str, Any]], started: Sequence[StepResult], run: RunState, *, first: int = 0
) -> list[StepState]:
    """None for a job of one step: that is the run itself. `first` is the index of the step with which the last dispatch begins."""
    if len(definition) < 2:
        return []
    by_index = {step.index: step for step in started}
    return [
        _step(definition, index, _state(index, by_index.get(index), started, run, first), by_index.get(index))
        for index in range(len(definition))
    ]


def attempt_steps(
    definition: Sequence[Mapping[str, Any]], started: Sequence[StepResult], state: str
) -> list[StepState]:
    """Those that an attempt in this state has started; none for a job of one step."""
    if len(definition) < 2:
        return []
    return [
        _step(definition, step.index, _started_state(step, state), step)
        for step in started
        if step.index < len(definition)
    ]


def _step(definition: Sequence[Mapping[str, Any]], index: int, state: str, started: StepResult | None) -> StepState:
    step = definition[index]
    return StepState(number=index + 1, id=step["id"], name=step.get("name", ""), state=state, started=started)


def _started_state(step: StepResult, attempt: str) -> str:
    if step.finished_at is not None and step.exit_code == 0:
        return "succeeded"
    if step.finished_at is None and attempt in _UNFINISHED:
        return _UNFINISHED[attempt]
    return "cancelled" if attempt == RunState.CANCELED else "failed"


def _state(index: int, step: StepResult | None, started: Sequence[StepResult], run: RunState, first: int) -> str:
    if step is None:
        before = index < (started[0].index if started else first)
        return "skipped" if before or run in TERMINAL else "pending"
    if step.finished_at is None:
        # Its attempt was lost; the run waits for the next one.
        lost = run in (RunState.PENDING, RunState.DEFERRED)
        return "lost" if lost else _ended(run) if run in TERMINAL else "running"
    if step.exit_code == 0:
        return "succeeded"
    return _ended(run)


def _ended(run: RunState) -> str:
    return "cancelled" if run is RunState.CANCELED else "failed"
