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


def step_states(
    definition: Sequence[Mapping[str, Any]], started: Sequence[StepResult], run: RunState
) -> list[StepState]:
    """None for a job of one step: that is the run itself."""
    if len(definition) < 2:
        return []
    by_index = {step.index: step for step in started}
    return [
        _step(definition, index, _state(index, by_index.get(index), started, run), by_index.get(index))
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


def _state(index: int, step: StepResult | None, started: Sequence[StepResult], run: RunState) -> str:
    if step is None:
        before = bool(started) and index < started[0].index
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
